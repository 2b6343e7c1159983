"""Anchors: signed heads of the audit log's chains, published to places outside of the database.

Belongs here: signed heads, their publication, and the comparison of the database with them. Never here: the chains
themselves (``ledger``), and pausing (``fleet``).
"""
