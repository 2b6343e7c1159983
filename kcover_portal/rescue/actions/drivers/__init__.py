"""Ways to reboot a machine. Each driver is one module: ``ask`` (idempotent by key) and ``ended`` (did it refuse?).

Whether the machine did reboot is never a driver's word: the node's boot id tells (invariant 16).
"""
