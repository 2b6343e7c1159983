"""Leases that the portal keeps."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseDraft:
    """A Lease as it should be. ``at``: its renew time."""

    name: str
    namespace: str
    holder: str
    annotations: Mapping[str, str]
    at: datetime
