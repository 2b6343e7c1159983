"""Clusters and nodes: what they are, and acts on them."""
