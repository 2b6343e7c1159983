"""Commands and addresses for running the portal: processes, the watch, health and metrics.

Belongs here: what starts, leads and stops processes, and says whether they are well. Never here: what they do.
"""
