"""Notifications: channels, routes, and deliveries whose rows are the queue.

Belongs here: the content of messages, their receivers, and whether they arrived. Never here: what is done about an
event. Events are read from the ledger and from incidents; their writers never push them. A rule's ``notify`` step is
settled through ``rescue.control``. A delivery that fails changes nothing but its own row.
"""
