"""The hardware passport: parts by serial number, and where each of them has been.

Belongs here: rows of parts and placements, what an inventory changes about them, parts that need attention. Never here:
inventories (``fleet``), faults (``incidents``), repairs (``repairs``), and what the facts mean (``kcover.machines``).
"""
