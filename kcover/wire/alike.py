"""Whether a report says just what another one said: told by its bytes, without reading it.

Most reports of a fleet do. Two bodies are alike where they differ in nothing but the values of ``batch_id`` and
``sent_at``; what was read of the first then holds for the second.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

from kcover.wire import fields

# hashlib lets other threads run for longer inputs (2,048 bytes and more), and waiting to go on costs more than hashing.
_PIECE = 2000
_BATCH_ID = re.compile(rb'"batch_id"[ ]?:[ ]?"(%s)"' % fields.UUID.pattern.encode())
_SENT_AT = re.compile(rb'"sent_at"[ ]?:[ ]?"(%s)"' % fields.RFC3339.pattern.encode())


@dataclass(frozen=True, slots=True)
class Likeness:
    """What is its own in a report, and a digest (16 bytes) of all the rest of its body."""

    batch_id: str
    sent_at: datetime
    rest: bytes


def likeness(body: bytes) -> Likeness | None:
    """What makes the report known again, None where that is not certain: read it whole.

    Of a body that ``decode`` does not take this says nothing. Of one that it takes: keys are spelled in one way only
    where there is no backslash, so that a name that stands in it once is the envelope's key, and a value of the same
    form in its place changes nothing else.
    """
    batch_id, sent_at = _BATCH_ID.search(body), _SENT_AT.search(body)
    if batch_id is None or sent_at is None or b"\\" in body:
        return None
    if body.count(b'"batch_id"') > 1 or body.count(b'"sent_at"') > 1:
        return None
    try:
        at = fields.required_moment({"sent_at": sent_at[1].decode()}, "sent_at")
    except fields.WireError:
        return None
    (first, last) = sorted((batch_id.span(1), sent_at.span(1)))
    # Each key shows where its value was.
    rest = b"".join((body[: first[0]], body[first[1] : last[0]], body[last[1] :]))
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(rest), _PIECE):
        digest.update(rest[start : start + _PIECE])
    return Likeness(batch_id[1].decode().lower(), at, digest.digest())
