"""Training jobs: what runs on the clusters, and orders to restart or stop one job.

Belongs here: the list of jobs as the API servers answer it, orders of people and programs, and the worker that carries
them out. Never here: what is done about a faulty node (rescue), or where faults come from (incidents, sources).
"""
