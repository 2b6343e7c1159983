"""Which rule applies, what holds it back, and whether the votes approve it.

Pure functions: facts in, an answer with reasons out.
"""
