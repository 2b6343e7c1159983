"""The ledger: what was done, by whom and why, append-only and hash-chained, one chain a cluster.

Belongs here: entries, their chain, its verification, timelines. Never here: a change or removal of an entry.
"""
