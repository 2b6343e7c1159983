"""Recognize a report that repeats an earlier one by its bytes, without decoding it.

Most reports of a fleet are repetitions. Two bodies have the same fingerprint if they differ only in the values of
``batch_id`` and ``sent_at``; the decoded content of the first is then valid for the second.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

from kcover.wire import fields

# hashlib releases the GIL for inputs of 2,048 bytes and more, and taking it again costs more than the hashing.
_CHUNK_BYTES = 2000
_BATCH_ID = re.compile(rb'"batch_id"[ ]?:[ ]?"(%s)"' % fields.UUID.pattern.encode())
_SENT_AT = re.compile(rb'"sent_at"[ ]?:[ ]?"(%s)"' % fields.RFC3339.pattern.encode())


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The values that are unique to a report, and a digest (16 bytes) of the rest of its body."""

    batch_id: str
    sent_at: datetime
    rest: bytes


def fingerprint(body: bytes) -> Fingerprint | None:
    """The fingerprint of a body; None if it is ambiguous and the body must be decoded.

    A fingerprint does not show that ``decode`` accepts the body. If it does: without a backslash there is only one
    spelling of each key, so a key that occurs once is the envelope's, and replacing its value changes nothing else.
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
    # The keys stay in the rest and show where their values were.
    rest = b"".join((body[: first[0]], body[first[1] : last[0]], body[last[1] :]))
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(rest), _CHUNK_BYTES):
        digest.update(rest[start : start + _CHUNK_BYTES])
    return Fingerprint(batch_id[1].decode().lower(), at, digest.digest())
