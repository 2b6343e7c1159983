"""GPUs of every vendor: one probe for each vendor, NVIDIA's library, and who uses the GPUs.

Only ``nvml`` imports ``pynvml``. ``rules`` says what the state of one NVIDIA GPU means.
"""
