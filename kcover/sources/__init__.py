"""Formats of other systems that report faults: each is read into observations of nodes.

Belongs here: what an alert, a health event or a node's condition says about a node. Never here: HTTP, clusters, the
database, or what is done about a fault.
"""
