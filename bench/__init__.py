"""Benchmarks of the product on this machine. The test suite asserts none of these figures.

Each module measures one thing and returns a Result; ``python -m bench [NAME ...]`` runs them and writes RESULTS.md.
"""
