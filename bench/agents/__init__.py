"""Real agents, many in one process and one alone: what they lose (nothing) and what they cost."""
