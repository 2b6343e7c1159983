"""The fleet: which clusters, nodes and GPUs there are, how they are, and what their agents were asked to do.

Belongs here: rows about what exists and its present state. Never here: what went wrong (incidents) or what is done
about it (rescue).
"""
