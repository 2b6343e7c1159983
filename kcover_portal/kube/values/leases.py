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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """The holder of a Lease of leader election; "" if it was released. ``version`` changes with each renewal."""

    holder: str
    seconds: int
    transitions: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseClaim:
    """A Lease of leader election as it should be. ``holder``: "" to release it.

    ``acquired``: since when; None keeps the time. ``version``: of the Lease that was read; "": there was none.
    """

    name: str
    namespace: str
    holder: str
    seconds: int
    transitions: int
    acquired: datetime | None
    at: datetime
    version: str
