"""Real agents, many in one process and one alone: lost faults (none) and resource usage."""
