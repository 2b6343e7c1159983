"""Reports about reliability: they read what the apps below recorded and calculate with ``kcover.reports``.

Belongs here: which rows a report reads, in the part of the fleet that a person sees. Never here: what a figure means
(``kcover/reports``), and pages.
"""
