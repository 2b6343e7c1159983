"""Training jobs: orders, and when they must be done."""
