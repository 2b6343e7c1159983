"""The fleet: clusters, nodes and GPUs, their state, and the commands to their agents.

Belongs here: rows about what exists and its current state. Never here: what went wrong (incidents) and what is done
about it (rescue).
"""
