"""The ledger: the append-only, hash-chained store of the audit log, with one chain per cluster.

Belongs here: entries, their chain, its verification, timelines, replay. Never here: changing or deleting an entry, and
the vocabulary of the entries (``kcover.audit``).
"""
