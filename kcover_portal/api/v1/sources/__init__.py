"""Sources of faults, and what they send."""
