"""Preflight: the reports of a job's nodes before it starts, and which nodes are abnormal or slow.

Belongs here: runs, their reports and the verdicts as rows. Never here: the rule (``kcover.preflight``), and the
response to a flagged node, which becomes a fault of kind ``preflight`` like any other fault.
"""
