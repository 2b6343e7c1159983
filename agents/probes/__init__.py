"""What reads the node: the kernel log (``follow`` gets records, ``kmsg`` makes faults of them), devices (``nvml``).

Belongs here: reading, and turning what was read into kernel values (``Fault``, ``Inventory``). Never here: the network,
the spool, a judgement of what a fault means. Only ``nvml`` imports ``pynvml``.
"""
