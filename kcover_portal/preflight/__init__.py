"""Preflight: what the nodes of a job reported before it began, and which of them are abnormal or slow.

Belongs here: runs, their reports, the verdict as rows. Never here: the rule (``kcover.preflight``), and what is done
about a flagged node: it becomes a fault of kind ``preflight`` and goes in where every other fault does.
"""
