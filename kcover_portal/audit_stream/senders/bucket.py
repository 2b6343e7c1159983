"""Records as objects of an S3 bucket: JSON Lines, one object for each batch, never written twice."""

import hashlib
from datetime import datetime
from typing import Final

from kcover_portal.lib import outgoing, outgoing_s3

DEFAULT_REGION: Final = "us-east-1"
PRECONDITION_FAILED: Final = 412  # an object of this name exists


def object_name(body: bytes, *, at: datetime) -> str:
    """``YYYY/MM/DD/HHMMSS-DIGEST.jsonl`` of a batch: the time of its first record, and a digest of the content.

    A batch that is sent again has the same name.
    """
    return f"{at:%Y/%m/%d/%H%M%S}-{hashlib.sha256(body).hexdigest()[:32]}.jsonl"


def send(
    address: str, body: bytes, *, key: str, region: str, at: datetime, now: datetime, seconds: float
) -> outgoing.RawResponse:
    """Writes one object, only if it does not exist. ``key``: ACCESS_KEY:SECRET_KEY. Raises outgoing.NoResponse."""
    reply = outgoing_s3.put(
        address,
        object_name(body, at=at),
        body,
        key=key,
        region=region or DEFAULT_REGION,
        headers={"Content-Type": "application/jsonl", "If-None-Match": "*"},
        now=now,
        seconds=seconds,
    )
    if reply.status == PRECONDITION_FAILED:  # written by an attempt whose answer was lost: the name holds the content
        return outgoing.RawResponse(status=200, data=b"")
    return reply
