"""What is sent, and how sending can end."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message: ``lines`` are plain text without line breaks, ``link`` leads to the portal ("" where it has no
    address), ``document`` is what a program gets. ``key`` is the same for every try."""

    key: str
    subject: str
    lines: tuple[str, ...]
    link: str = ""
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Everything as plain text."""
        return "\n".join([self.subject, *self.lines, *([self.link] if self.link else [])])


class NotTaken(Exception):
    """The other side did not take it. ``later``: it may do so another time."""

    def __init__(self, message: str, *, later: bool) -> None:
        super().__init__(message)
        self.later = later
