"""Decisions: the rule that applies, the guards that hold it back, and the approvals.

Pure functions: facts in, an answer with reasons out.
"""
