"""The values that are sent, and the error of sending."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kcover import reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class PagerEvent:
    """One event for a pager. ``action``: of ``kcover.notify.pager``, ``page``: the same for all events of one page.

    ``summary`` and ``lines`` are plain text, ``source`` is the node (or where it is), ``component`` the fault in short,
    ``severity`` of ``catalog.SEVERITIES``, ``link`` the portal's page about it, ``notices`` the rows that it covers,
    ``body`` what an Alertmanager gets instead.
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
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message.

    ``lines``: plain text without line breaks; ``link``: to the portal ("" if it has no public URL);
    ``document``: for programs; ``events``: for pagers; ``key``: the same for every attempt.
    """

    key: str
    subject: str
    lines: tuple[str, ...]
    link: str = ""
    document: dict[str, Any] = field(default_factory=dict)
    events: tuple[PagerEvent, ...] = ()

    @property
    def text(self) -> str:
        """Everything as plain text."""
        return "\n".join([self.subject, *self.lines, *([self.link] if self.link else [])])


class SendError(reasons.ExplainedError):
    """The message was not accepted. ``later``: a retry may help, after ``wait`` seconds if the other side names any."""

    def __init__(self, reason: reasons.Reason, *, later: bool, wait: float = 0) -> None:
        super().__init__(reason)
        self.later = later
        self.wait = wait
