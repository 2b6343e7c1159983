"""The kernel log: ``sources`` reads records, ``kmsg`` turns them into faults, ``reader`` combines both.

Belongs here: reading without losing or repeating a record. Never here: the meaning of an Xid (that is in the core).
"""
