"""Shared by all actions: the context of one run of a step, its outcomes, locks, marks and drivers.

Belongs here: what several actions share. Never here: an action, or anything that chooses which step runs.
"""
