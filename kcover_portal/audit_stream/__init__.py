"""The audit stream: records of what happened, sent in order to sinks outside of the portal.

Belongs here: topics (ordered sources of records), sinks, their positions, and delivery. Never here: what is recorded
(``ledger``), and messages to people (``notify``).
"""
