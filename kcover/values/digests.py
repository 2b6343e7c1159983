"""Digests of JSON values: SHA-256 over one canonical text, so that everybody computes the same digest."""

import hashlib
import json
from typing import Any


def canonical(value: Any) -> bytes:
    """The value as JSON with sorted keys and without spaces, in UTF-8. Keys must be strings."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(value: Any) -> str:
    """The SHA-256 of the canonical JSON, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value)).hexdigest()
