"""Measurements: how fast the product is, on this machine, today. Nothing here is asserted in the test suite.

Each module measures one thing and returns a Result; ``python -m bench [NAME ...]`` runs them and writes RESULTS.md.
"""
