"""Collects evidence about this node before a reset or a reboot destroys it.

Belongs here: which tools and files are read, and their limits. Never here: redaction and the format of a bundle
(``kcover.evidence``), and how a bundle reaches the portal (``agents.outbox.evidence_files``).
"""
