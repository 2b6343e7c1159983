"""Signed heads as objects of an S3 bucket with object lock: nobody can change or delete them before their time."""

import base64
import hashlib
import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from kcover import reasons
from kcover_portal.anchors.signed_heads import SignedHeads
from kcover_portal.config.setting_values import Bucket
from kcover_portal.lib import outgoing, outgoing_s3

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 15.0
# S3 answers an error in XML. A pattern finds these two, so that no XML parser reads what another system sends.
_ERROR_PART = r"<{0}>([^<]{{1,200}})</{0}>"


class BucketError(reasons.ExplainedError):
    """The object was not written."""


def put(heads: SignedHeads, target: Bucket) -> None:
    """Writes one object with one line, kept for ``target.days`` in compliance mode.

    Raises BucketError, also if the bucket has no object lock.
    """
    bucket = urlsplit(target.url).path.strip("/").partition("/")[0]
    body = f"{heads.line()}\n".encode()
    kept_until = heads.at + timedelta(days=target.days)
    headers = {
        "Content-Type": "application/json",
        "x-amz-object-lock-mode": "COMPLIANCE",
        "x-amz-object-lock-retain-until-date": kept_until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "x-amz-sdk-checksum-algorithm": "SHA256",  # S3 wants a checksum for locked objects
        "x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(body).digest()).decode(),
    }
    try:
        reply = outgoing_s3.put(
            target.url,
            f"{heads.at:%Y/%m/%d/%H%M%S}-{heads.fingerprint()[:16]}.jsonl",
            body,
            key=target.key,
            region=target.region,
            headers=headers,
            now=datetime.now(UTC),  # S3 compares it with its own clock
            seconds=ANSWER_SECONDS,
        )
    except outgoing.NoResponse as error:
        raise BucketError(reasons.of("anchor_bucket_refused", bucket=bucket, error=error.reason)) from error
    if not 200 <= reply.status < 300:
        log.warning("bucket %s did not take the object: status %d: %r", bucket, reply.status, reply.data[:1000])
        raise BucketError(reasons.of("anchor_bucket_refused", bucket=bucket, error=_why(reply.data)))


def _why(answer: bytes) -> str | reasons.Reason:
    """The code and message of S3, without ids and addresses; a reference to the log if it sent none."""
    text = answer.decode(errors="replace")
    code, message = (re.search(_ERROR_PART.format(part), text) for part in ("Code", "Message"))
    if code is None:
        return reasons.of("anchor_bucket_silent")
    return f"{code[1]}: {message[1]}"[:200] if message else code[1]
