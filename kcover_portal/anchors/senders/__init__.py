"""The places that signed heads are published to, by name. A sender raises PublishError; it sends once."""

import functools
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from django.conf import settings

from kcover import reasons
from kcover_portal.anchors.senders import bucket
from kcover_portal.anchors.signed_heads import SignedHeads
from kcover_portal.config import private_files
from kcover_portal.config.setting_values import Bucket
from kcover_portal.lib import outgoing

log = logging.getLogger("kcover_portal.anchors.heads")

WEBHOOK_TIMEOUT_SECONDS = 10.0


class PublishError(reasons.ExplainedError):
    """The heads did not get to the place."""


def to_log(heads: SignedHeads) -> None:
    """Writes one line of the process log: the document as JSON."""
    log.info("%s", heads.line())


def to_file(path: Path, heads: SignedHeads) -> None:
    """Appends one line to the file and makes it durable. A line that a crash cut stays, and is passed over later."""
    try:
        private_files.make_folder(path.parent)
        private_files.append_line(path, heads.line())
    except OSError as error:
        why = error.strerror or os.strerror(error.errno or 0)
        raise PublishError(reasons.of("anchor_not_written", path=str(path), error=why)) from error


def to_webhook(heads: SignedHeads) -> None:
    """Posts the document, signed as every webhook, under the rules of ``outgoing``."""
    url, secret = settings.KCOVER_ANCHOR_WEBHOOK, settings.KCOVER_ANCHOR_WEBHOOK_SECRET
    try:
        reply = outgoing.send(url, json.loads(heads.line()), secret=secret, seconds=WEBHOOK_TIMEOUT_SECONDS)
    except outgoing.NoResponse as error:
        raise PublishError(error.reason) from error
    if not 200 <= reply.status < 300:
        raise PublishError(reasons.of("anchor_webhook_refused", status=str(reply.status)))


def to_bucket(target: Bucket, heads: SignedHeads) -> None:
    """Writes an object into the S3 bucket."""
    try:
        bucket.put(heads, target)
    except bucket.BucketError as error:
        raise PublishError(error.reason) from error


def configured() -> Mapping[str, Callable[[SignedHeads], None]]:
    """The places of this installation; the log is always one."""
    places: dict[str, Callable[[SignedHeads], None]] = {"log": to_log}
    if settings.KCOVER_ANCHOR is not None:
        places["file"] = functools.partial(to_file, settings.KCOVER_ANCHOR)
    if settings.KCOVER_ANCHOR_WEBHOOK:
        places["webhook"] = to_webhook
    if settings.KCOVER_ANCHOR_S3 is not None:
        places["bucket"] = functools.partial(to_bucket, settings.KCOVER_ANCHOR_S3)
    return places
