"""Benchmarks: how fast the product is on this machine. The test suite asserts nothing of this.

Each module measures one thing and returns a Result; ``python -m bench [NAME ...]`` runs them and writes RESULTS.md.
"""
