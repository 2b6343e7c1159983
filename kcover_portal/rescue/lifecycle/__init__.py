"""How a rescue begins, ends, is revoked and starts a second round.

Belongs here: changes of the rescue as a whole. Never here: who asked for them.
"""
