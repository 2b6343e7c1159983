"""Real agents, many in one process and one by itself: what they lose (nothing) and what they cost."""
