"""Pages and their fragments, by subject.

Each view answers both: ``base`` (see ``context``) is the page or its live part.
"""
