"""The election between portals by real processes: each of its calls, hit by each failure."""
