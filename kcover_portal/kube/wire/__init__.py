"""Kubernetes JSON to the port's values: only the fields that are needed are decoded, the rest is skipped unparsed.

Measured on 5,000 nodes of 15.6 KB: 45 µs a node, against 790 µs with the official client's models. One module for each
family of objects; each ``…Object`` has ``value()``. What a value means to the portal never belongs here.
"""
