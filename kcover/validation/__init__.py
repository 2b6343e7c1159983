"""Validation of nodes: which checks a profile asks for, and what their results prove.

Belongs here: profiles and the verdict, as pure functions. Never here: how checks are run (agents, portal).
"""
