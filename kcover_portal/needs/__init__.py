"""Needs: what needs attention, one entry a cause, and what people did about it.

Belongs here: the grouping of rows into causes, the acts that a caller may do next, and the rows of acknowledgements,
assignments, snoozes and notes. Never here: which rows need attention (``needs_person`` and each app), and the acts.
"""
