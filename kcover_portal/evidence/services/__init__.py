"""Changes to bundles: the request, the upload, the deletion."""

from kcover_portal.evidence.services.requests import request as request
from kcover_portal.evidence.services.stored_bundles import prune as prune
from kcover_portal.evidence.services.uploads import (
    AnotherBundle as AnotherBundle,
    UnknownBundle as UnknownBundle,
    WrongChunk as WrongChunk,
    take as take,
)
