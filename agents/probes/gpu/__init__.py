"""NVIDIA GPUs: ``probe`` asks and remembers, ``rules`` says what one GPU's state means."""
