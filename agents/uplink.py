"""What the portal's answers to an agent mean (interfaces: agent ingest), and what an agent needs of a line to it."""

import email.utils
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

from kcover import fault, wire

MAX_RETRY_AFTER = 600.0
ENROLMENT_PREFIX = "kce_"


class UplinkError(Exception):
    """A report was not taken. The plain error means: keep it, ask later, at the earliest after ``retry_after``
    seconds."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Malformed(UplinkError):
    """400: the envelope is wrong, sending it again will not help; drop it."""


class SetAside(UplinkError):
    """403, 413: this report is not wanted now, another one may be; keep it and let others pass."""


class Broke(UplinkError):
    """500: the portal broke, perhaps over this report; keep it, and let others pass if that goes on."""


class Uplink(Protocol):
    """What an agent needs of a portal; a simulator may bring its own."""

    def post_report(self, body: bytes) -> wire.Answer:
        """Hand over one report (JSON, wire format 1), durable when this returns. Raises UplinkError."""

    def poll_commands(self, *, wait: float) -> tuple[fault.Command, ...]:
        """Commands for this node, waiting up to ``wait`` seconds for one. Raises UplinkError."""

    def close(self) -> None:
        """End calls under way, they raise UplinkError."""


def read_answer(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> wire.Answer:
    """The meaning of the portal's answer to a report.

    Raises Malformed (400), SetAside (403, 413), Broke (500) or UplinkError (everything else but 2xx). ``headers``
    need only carry ``Retry-After``.
    """
    check_status(status, headers, body, now=now)
    try:
        return wire.decode_answer(json.loads(body))
    except ValueError as error:
        raise UplinkError(f"answer {status} is not understood: {error}") from error


def check_status(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime) -> None:
    """Raise what a status other than 2xx means, see ``read_answer``."""
    if 200 <= status < 300:
        return
    text = f"{status} {body[:300].decode(errors='replace')}".strip()
    if status == 400:
        raise Malformed(text)
    retry_after = parse_retry_after(headers.get("Retry-After"), now=now)
    kinds = {403: SetAside, 413: SetAside, 500: Broke}
    raise kinds.get(status, UplinkError)(text, retry_after=retry_after)


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Seconds to wait, from ``Retry-After``'s seconds or HTTP date, at most 10 minutes; None for absent or nonsense."""
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


def needs_enrolment(token: str) -> bool:
    """Whether the token is good only for getting the node's own one. A service account's token speaks for its node."""
    return token.startswith(ENROLMENT_PREFIX)
