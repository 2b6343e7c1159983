"""What is sent, and how sending can end."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event for a pager. ``action``: of ``kcover.paging``, ``page``: the same for all events of one page.

    ``summary`` and ``lines`` are plain text, ``source`` is the node (or where it is), ``component`` the fault in short,
    ``severity`` of ``catalog.SEVERITIES``, ``link`` the portal's page about it, ``notices`` the rows that it tells.
    """

    action: str
    page: str
    summary: str
    severity: str
    kind: str = ""
    lines: tuple[str, ...] = ()
    source: str = ""
    component: str = ""
    cluster: str = ""
    link: str = ""
    at: datetime | None = None
    details: dict[str, str] = field(default_factory=dict)
    notices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message: ``lines`` are plain text without line breaks, ``link`` leads to the portal ("" where it has no
    address), ``document`` is what a program gets, ``events`` what a pager does. ``key`` is the same for every try."""

    key: str
    subject: str
    lines: tuple[str, ...]
    link: str = ""
    document: dict[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()

    @property
    def text(self) -> str:
        """Everything as plain text."""
        return "\n".join([self.subject, *self.lines, *([self.link] if self.link else [])])


class NotTaken(Exception):
    """The other side did not take it. ``later``: it may do so another time, in ``wait`` seconds if it says so."""

    def __init__(self, message: str, *, later: bool, wait: float = 0) -> None:
        super().__init__(message)
        self.later = later
        self.wait = wait
