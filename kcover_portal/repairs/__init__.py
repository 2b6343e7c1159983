"""The repair desk: repairs of machines and their parts, from the report to the passed validation of the machine.

Belongs here: rows of repairs, the moves of people, repairs that the portal reports itself. Never here: the life cycle
(``kcover.repairs``), the checks that prove a machine sound (``checks``), and what is done to a node (``rescue``).
"""
