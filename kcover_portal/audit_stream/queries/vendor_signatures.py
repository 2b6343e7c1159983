"""The signatures of events that the vendor of a sink sends.

The vendor has one secret, that of the sink. Events are signed with a key that is derived from it one way
(HMAC-SHA-256). So the process that checks events needs no key that signs what the portal sends, and no signature of one
direction is valid in the other.
"""

import hashlib
import hmac
from typing import Final

from kcover_portal.audit_stream.models import Sink

KEY_PURPOSE: Final = b"kcover vendor events 1"
DOMAIN: Final = "kcover-vendor-event-1"  # the first line of what is signed
NO_KEY: Final = "00" * 32  # an unknown sink costs the same computation


def key_of(secret: str) -> str:
    """The key that signs a vendor's events, as 64 hexadecimal digits."""
    return hmac.new(secret.encode(), KEY_PURPOSE, hashlib.sha256).hexdigest()


def signature(key: str, *, sink: str, timestamp: str, body: bytes) -> str:
    """The value of the header for a body. ``sink``: its name; ``timestamp``: the header's text."""
    return header_of(bytes.fromhex(key), DOMAIN, sink=sink, timestamp=timestamp, body=body)


def header_of(key: bytes, domain: str, *, sink: str, timestamp: str, body: bytes) -> str:
    """The signature of a body that arrives for a sink. ``domain``: the first line, one for each kind of message."""
    signed = f"{domain}\n{sink}\n{timestamp}\n".encode() + body
    return "sha256=" + hmac.new(key, signed, hashlib.sha256).hexdigest()


def sink_of_vendor(name: str) -> Sink | None:
    """The enabled sink of this name whose vendor may send events; None without one."""
    found = Sink.objects.filter(name=name, enabled=True).exclude(incoming_key="").first()
    return found if found is not None and found.options.get("vendor") else None


def is_signed(sink: Sink | None, *, name: str, timestamp: str, body: bytes, header: str) -> bool:
    """Returns whether the header signs this body for this sink, in constant time. Raises SecretUnreadable."""
    key = sink.incoming_key if sink is not None else NO_KEY
    wanted = signature(key, sink=name, timestamp=timestamp, body=body)
    return hmac.compare_digest(wanted.encode(), header.strip().encode()) and sink is not None
