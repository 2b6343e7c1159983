"""Signed heads as objects of an S3 bucket with object lock: nobody can change or delete them before their time."""

import base64
import hashlib
import io
import logging
import os
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import certifi
import urllib3

from kcover import reasons
from kcover_portal import deferred
from kcover_portal.anchors.signed_heads import SignedHeads
from kcover_portal.setting_values import Bucket

if TYPE_CHECKING:
    import minio
    from minio import commonconfig, retention
    from minio import error as minio_errors
else:  # a quarter of a second, which only an installation with a bucket needs
    minio, minio_errors = deferred.Module("minio"), deferred.Module("minio.error")
    commonconfig, retention = deferred.Module("minio.commonconfig"), deferred.Module("minio.retention")

log = logging.getLogger(__name__)

CONNECT_SECONDS, READ_SECONDS = 5.0, 10.0


class BucketError(reasons.ExplainedError):
    """The object was not written."""


def put(heads: SignedHeads, target: Bucket) -> None:
    """Writes one object with one line, kept for ``target.days`` in compliance mode.

    Raises BucketError, also if the bucket has no object lock.
    """
    place = urlsplit(target.url)
    bucket, _, prefix = place.path.strip("/").partition("/")
    name = "/".join(part for part in (prefix, f"{heads.at:%Y/%m/%d/%H%M%S}-{heads.fingerprint()[:16]}.jsonl") if part)
    body = f"{heads.line()}\n".encode()
    checksum = base64.b64encode(hashlib.sha256(body).digest()).decode()  # S3 wants one for locked objects
    try:
        _client(target).put_object(
            bucket,
            name,
            io.BytesIO(body),
            len(body),
            content_type="application/json",
            metadata={"x-amz-sdk-checksum-algorithm": "SHA256", "x-amz-checksum-sha256": checksum},
            retention=retention.Retention(commonconfig.COMPLIANCE, heads.at + timedelta(days=target.days)),
        )
    except (minio_errors.MinioException, urllib3.exceptions.HTTPError, ValueError, OSError) as error:
        log.warning("bucket %s did not take the object: %s", bucket, error)
        raise BucketError(reasons.of("anchor_bucket_refused", bucket=bucket, error=_why(error))) from error


def _client(target: Bucket) -> "minio.Minio":
    place, (key, _, secret) = urlsplit(target.url), target.key.partition(":")
    timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS)
    authorities = os.environ.get("SSL_CERT_FILE") or certifi.where()
    pool = urllib3.PoolManager(timeout=timeout, retries=False, cert_reqs="CERT_REQUIRED", ca_certs=authorities)
    return minio.Minio(
        place.netloc,
        access_key=key,
        secret_key=secret,
        secure=place.scheme == "https",
        region=target.region,
        http_client=pool,
    )


def _why(error: Exception) -> str | reasons.Reason:
    """The code and message of S3, without ids and addresses; a reference to the log if it sent none."""
    code = getattr(error, "code", None)
    message = getattr(error, "message", None)
    return f"{code}: {message}"[:200] if code else reasons.of("anchor_bucket_silent")
