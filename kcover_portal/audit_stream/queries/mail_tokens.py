"""The tokens that bind a reply by mail to a repair, and the signatures of the gateway that passes replies on.

Both are made with the sink's secret for incoming messages, each of a text with a first line of its own.
"""

import base64
import hashlib
import hmac
from typing import Final

from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import vendor_signatures

TOKEN_DOMAIN: Final = "kcover-mail-token-1"
GATEWAY_DOMAIN: Final = "kcover-mail-1"
TOKEN_BYTES: Final = 16
NO_SECRET: Final = "0" * 32  # an unknown sink costs the same computation


def token_of(sink: Sink, repair: int) -> str:
    """The token of a repair: 26 characters of base32 in lower case. Raises SecretUnreadable."""
    made = hmac.new(sink.incoming_key.encode(), f"{TOKEN_DOMAIN}\n{sink.name}\n{repair}".encode(), hashlib.sha256)
    return base64.b32encode(made.digest()[:TOKEN_BYTES]).decode().rstrip("=").lower()


def is_token(sink: Sink, repair: int, token: str) -> bool:
    """Returns whether this is the repair's token, in constant time. Raises SecretUnreadable."""
    return hmac.compare_digest(token_of(sink, repair).encode(), token.encode())


def is_signed(sink: Sink | None, *, name: str, timestamp: str, body: bytes, header: str) -> bool:
    """Returns whether the header signs this body for this sink, in constant time. Raises SecretUnreadable."""
    secret = sink.incoming_key if sink is not None else NO_SECRET
    wanted = vendor_signatures.header_of(secret.encode(), GATEWAY_DOMAIN, sink=name, timestamp=timestamp, body=body)
    return hmac.compare_digest(wanted.encode(), header.strip().encode()) and sink is not None
