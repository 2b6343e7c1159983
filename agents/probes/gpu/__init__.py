"""GPUs of every vendor: one probe for each vendor, NVIDIA's library, and who uses the GPUs.

Only ``nvml`` imports ``pynvml``. ``rules`` interprets the state of one NVIDIA GPU.
"""
