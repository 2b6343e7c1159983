"""The parts of a node that are not GPUs: clock, disks, network adapters, memory, kubelet.

Belongs here: one module for each probe. Never here: a probe that needs a GPU driver.
"""
