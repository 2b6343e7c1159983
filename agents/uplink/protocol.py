"""The agent's side of the ingest protocol: the meaning of the portal's answers, and the interface of an uplink."""

import email.utils
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

from kcover import wire
from kcover.evidence import bundle
from kcover.faults import fault

MAX_RETRY_AFTER = 600.0
ENROLMENT_PREFIX = "kce_"


class UplinkError(Exception):
    """A call failed. The plain error means: keep the report and try again, at the earliest after ``retry_after``
    seconds."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ReportMalformed(UplinkError):
    """400: the report is malformed. Sending it again will not help; drop it."""


class ReportDeferred(UplinkError):
    """403 or 413: the portal refuses this report for now, but may accept others. Keep it and send others first."""


class PortalFailed(UplinkError):
    """500: the portal failed, perhaps because of this report. Keep it; send others first if that happens repeatedly."""


class Uplink(Protocol):
    """The portal as an agent needs it. The simulator has its own implementation."""

    def post_report(self, body: bytes) -> wire.Answer:
        """Deliver one report (JSON, wire format 1). The portal has stored it when this returns. Raises UplinkError."""

    def post_preflight(self, body: bytes) -> None:
        """Deliver one preflight report (JSON). The portal has stored it when this returns. Raises UplinkError."""

    def post_evidence(self, upload: bundle.Upload, chunk: bytes) -> int:
        """Deliver a chunk of a bundle of evidence. Return how many bytes of the bundle the portal has stored.

        Raises UplinkError.
        """

    def fetch_peers(self) -> tuple[str, ...]:
        """The addresses of the nodes that this node pings on its timer. Raises UplinkError."""

    def poll_commands(self, *, wait: float) -> tuple[fault.Command, ...]:
        """The commands for this node; wait up to ``wait`` seconds for one. Raises UplinkError."""

    def close(self) -> None:
        """Abort calls in progress; they raise UplinkError."""


def parse_answer(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> wire.Answer:
    """The portal's answer to a report. ``headers`` only need ``Retry-After``.

    Raises ReportMalformed (400), ReportDeferred (403, 413), PortalFailed (500), or UplinkError for any other status
    outside 2xx.
    """
    raise_for_status(status, headers, body, now=now)
    try:
        return wire.decode_answer(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise UplinkError(f"the body of the portal's answer ({status}) cannot be read: {error}") from error


def raise_for_status(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> None:
    """Raise the error for a status outside 2xx, see ``parse_answer``."""
    if 200 <= status < 300:
        return
    text = f"{status} {_said(body)}".strip()
    if status == 400:
        raise ReportMalformed(text)
    retry_after = parse_retry_after(headers.get("Retry-After"), now=now)
    kinds = {403: ReportDeferred, 413: ReportDeferred, 500: PortalFailed}
    raise kinds.get(status, UplinkError)(text, retry_after=retry_after)


def _said(body: bytes) -> str:
    """The code and the detail of a problem document (RFC 9457), or the beginning of another body, for the log."""
    try:
        problem = json.loads(body)
        return f"{problem['code']}: {problem['detail']}"[:500]
    except (ValueError, TypeError, KeyError, RecursionError):
        return body[:300].decode(errors="replace")


def parse_received(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> int:
    """The bytes that the portal has, from its answer to a chunk of evidence. Raises UplinkError."""
    if status == 404:  # the portal did not ask for this bundle, or does not wait for it any more
        raise ReportMalformed(f"{status} {_said(body)}".strip())
    raise_for_status(status, headers, body, now=now)
    try:
        received = json.loads(body)["received"]
    except (ValueError, TypeError, KeyError) as error:
        raise UplinkError(f"the body of the portal's answer ({status}) cannot be read: {error}") from error
    if not isinstance(received, int) or not 0 <= received <= bundle.MAX_BYTES:
        raise UplinkError(f"the portal has {received!r} bytes of the evidence")
    return received


def parse_peers(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> tuple[str, ...]:
    """The neighbours from the portal's answer. Raises UplinkError."""
    raise_for_status(status, headers, body, now=now)
    try:
        peers = json.loads(body)["peers"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UplinkError(f"the body of the portal's answer ({status}) cannot be read: {error}") from error
    if not isinstance(peers, list) or not all(isinstance(peer, str) for peer in peers):
        raise UplinkError("the peers in the portal's answer are not a list of addresses")
    return tuple(peers)


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Seconds to wait, at most 10 minutes, from ``Retry-After`` in seconds or as an HTTP date. None if it is absent
    or invalid."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            until = email.utils.parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (until.astimezone(UTC) - now).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER) if seconds == seconds else None


def new_enrolment_key() -> str:
    """A key for the enrolment of this node: 128 random bits, in hexadecimal."""
    return os.urandom(16).hex()


def enrolment_body(node: str, *, key: str = "") -> bytes:
    """The body of a request for a credential. ``key``: of an enrolment; a renewal has none."""
    return json.dumps({"node": node} | ({"key": key} if key else {})).encode()


def is_enrolment_token(token: str) -> bool:
    """Return whether the token can only be traded for a credential of the node."""
    return token.startswith(ENROLMENT_PREFIX)
