"""Other systems that report faults: their settings, and the intake of what they send or show.

Belongs here: rows of sources, recognizing repetitions, the health of each source. Never here: formats
(``kcover.sources``), and what a fault means (``incidents``).
"""
