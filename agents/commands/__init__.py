"""Commands from the portal: each is executed at most once, and its result is kept until the portal has it.

Belongs here: the journal, and the executor that acts on the node. Never here: how commands arrive.
"""
