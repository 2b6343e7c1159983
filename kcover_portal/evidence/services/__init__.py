"""Changes to bundles: the request, the upload, the deletion."""

from kcover_portal.evidence.services.requests import request
from kcover_portal.evidence.services.retention import prune
from kcover_portal.evidence.services.uploads import AnotherBundle, UnknownBundle, WrongChunk, take

__all__ = ["AnotherBundle", "UnknownBundle", "WrongChunk", "prune", "request", "take"]
