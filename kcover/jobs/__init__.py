"""Training jobs: when a checkpoint was written last, and their performance against their own past."""
