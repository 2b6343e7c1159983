"""Errors of the agent API as RFC 9457 problem documents, with a stable code and the expected input.

They are in English, because agents write them to their log. ``code`` and ``params`` give the sentence in any language.
"""

from typing import Any

from kcover import reasons

# Agents react to the status: after 400 they drop the report, after 403 and 413 they set it aside, otherwise they retry.
# The title is for people who read the agent's log.
_UNREADABLE = {
    "reports": "The report cannot be read",
    "enrol": "The enrolment cannot be read",
    "commands": "The command request cannot be read",
    "preflight": "The preflight report cannot be read",
    "evidence": "The evidence cannot be read",
}
_TITLES = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "The node's credential is in use",
    413: "Content too large",
    415: "Unsupported content encoding",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
}


class Refusal(reasons.ExplainedError):
    """A rejected request.

    ``field``: the invalid key, header or parameter, if any. ``retry_after``: seconds until a retry may succeed.
    ``allow``: the accepted method, for a 405.
    """

    def __init__(
        self, status: int, reason: reasons.Reason, *, field: str = "", retry_after: int | None = None, allow: str = ""
    ) -> None:
        super().__init__(reason)
        self.status, self.field, self.retry_after, self.allow = status, field, retry_after, allow

    def document(self, subject: str) -> dict[str, Any]:
        """Returns the problem document; ``subject`` is the endpoint, such as reports."""
        reason = str(self.reason)
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": _TITLES.get(self.status) or _UNREADABLE.get(subject, "The request cannot be read"),
            "status": self.status,
            "detail": f"{self.field}: {reason}" if self.field else reason,
            **self.reason.to_json(),
        }
        if self.field:
            body["errors"] = [{"field": self.field, **self.reason.to_json(), "reason": reason}]
        return body

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Returns the headers that the status requires."""
        headers = []
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 408:  # the rest of the body is not read
            headers.append((b"connection", b"close"))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers
