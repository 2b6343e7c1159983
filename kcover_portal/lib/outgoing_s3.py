"""Objects of S3 buckets. minio signs the request; ``outgoing`` sends it, so its rules for addresses hold here too."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from kcover_portal.config import deferred
from kcover_portal.lib import outgoing

if TYPE_CHECKING:
    from minio import signer
    from minio.credentials import providers
else:  # a quarter of a second, which only an installation with a bucket needs
    providers, signer = deferred.Module("minio.credentials.providers"), deferred.Module("minio.signer")


def put(
    address: str,
    name: str,
    body: bytes,
    *,
    key: str,
    region: str,
    headers: Mapping[str, str],
    now: datetime,
    seconds: float,
) -> outgoing.RawResponse:
    """Writes one object once. ``address``: of the bucket, with a prefix or without. ``key``: ACCESS_KEY:SECRET_KEY.

    ``headers``: further ones, which are signed. Raises outgoing.NoResponse.
    """
    url = f"{address.rstrip('/')}/{quote(name)}"
    parts = urlsplit(url)
    access, _, secret = key.partition(":")
    digest = hashlib.sha256(body).hexdigest()
    own = {
        "Host": parts.netloc,
        "x-amz-content-sha256": digest,
        "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
    }
    signed = signer.sign_v4_s3(
        method="PUT",
        url=parts,
        region=region,
        headers={**headers, **own},
        credentials=providers.StaticProvider(access, secret).retrieve(),
        content_sha256=digest,
        date=now,
    )
    sent = {**headers, **own, "Authorization": str(signed["Authorization"])}
    return outgoing.request("PUT", url, body=body, headers=sent, seconds=seconds)
