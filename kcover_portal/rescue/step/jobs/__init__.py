"""Training jobs on the node of a step: their owners, checkpoints, restarts and windows."""
