"""Decodes Kubernetes JSON to the port's values. Only the needed fields are decoded; the rest is skipped.

Measured on 5,000 nodes of 15.6 KB: 45 µs per node, against 790 µs with the official client's models. One module per
family of objects; each ``…Object`` has ``value()``. Never here: what a value means to the portal.
"""
