"""Telling people: channels, routes, and deliveries whose rows are the queue.

Belongs here: what is told, to whom, and whether it arrived. Never here: what is done about it. Happenings are read from
the ledger and from incidents, never pushed by those who write them; a rule's ``notify`` step is settled through
``rescue.services``. A delivery that fails changes nothing but its own row.
"""
