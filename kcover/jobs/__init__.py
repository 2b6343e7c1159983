"""Training jobs: when a checkpoint was written last."""
