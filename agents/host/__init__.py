"""Access to the machine: running programs, durable files, deadlines for calls that may hang.

Belongs here: helpers that know nothing of GPUs, faults or the portal. Never here: a probe.
"""
