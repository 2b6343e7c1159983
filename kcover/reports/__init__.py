"""Figures about reliability, as pure functions of what was recorded: faults, rescues, isolations and repairs.

Belongs here: what each figure means, and its interval. Never here: how the records are read, and who may see them.
"""
