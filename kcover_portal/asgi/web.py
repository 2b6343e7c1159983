"""The application of the process ``web``: pages and REST, and nothing of the agents'."""

from kcover_portal import asgi
from kcover_portal.config import gc_tuning

THREADS = 8  # of each process; each may have one connection to the database

application = asgi.pages_in_threads(THREADS, takes_chunks=False)

gc_tuning.freeze_after_startup()
