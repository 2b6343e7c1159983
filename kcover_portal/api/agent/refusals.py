"""What the agents' door says no with: RFC 9457 problem documents that say what is wrong, where, and what to write."""

from typing import Any

# An agent acts on the status (kcover portal's agents: 400 drop it, 403 and 413 set it aside, all others try later);
# the title is for the person who reads its log.
_UNREADABLE = {
    "reports": "The report cannot be read",
    "enrol": "The enrolment cannot be read",
    "commands": "The question for commands cannot be read",
}
_TITLES = {
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Wrong method",
    408: "Too slow",
    409: "The node's credential is in use",
    413: "Too large",
    415: "Unknown encoding",
    429: "Too many requests",
    500: "The portal made a mistake",
    503: "Not available",
}


class Refusal(Exception):
    """A request that is not met.

    ``field``: the key, header or parameter that is wrong, "" where it is none. ``retry_after``: seconds, where asking
    again will help. ``allow``: the method that the address takes, for a 405.
    """

    def __init__(
        self, status: int, reason: str, *, field: str = "", retry_after: int | None = None, allow: str = ""
    ) -> None:
        super().__init__(reason)
        self.status, self.reason, self.field, self.retry_after, self.allow = status, reason, field, retry_after, allow

    def document(self, subject: str) -> dict[str, Any]:
        """The problem document; ``subject`` is what was asked for: reports, enrol or commands."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": _TITLES.get(self.status) or _UNREADABLE.get(subject, "The request cannot be read"),
            "status": self.status,
            "detail": f"{self.field}: {self.reason}" if self.field else self.reason,
        }
        if self.field:
            body["errors"] = [{"field": self.field, "reason": self.reason}]
        return body

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What the status asks to be told beside the document."""
        headers = []
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 408:  # what is left of the body is not waited for
            headers.append((b"connection", b"close"))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers
