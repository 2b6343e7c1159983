"""Probes observe the node without changing it; each one runs under a deadline.

Belongs here: observing, and turning what was observed into the core's values (``Check``, ``Fault``, ``Inventory``). One
folder for each subject: ``gpu``, ``host``, and ``log`` for the kernel log. Never here: a call to the portal, the spool,
a test that loads the node (a health check), or a decision about the node.
"""
