"""Errors of the agent API as RFC 9457 problem documents: a stable code, what is wrong, where, and what to send."""

from typing import Any

# An agent acts on the status (kcover portal's agents: 400 drop it, 403 and 413 set it aside, all others try later);
# the title is for the person who reads its log.
_UNREADABLE = {
    "reports": "The report cannot be read",
    "enrol": "The enrolment cannot be read",
    "commands": "The command request cannot be read",
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
_CODES = {  # of refusals that name none of their own
    400: "invalid",
    401: "not_authenticated",
    403: "permission_denied",
    404: "unknown_endpoint",
    405: "method_not_allowed",
    408: "body_timeout",
    409: "credential_in_use",
    413: "too_large",
    415: "unsupported_encoding",
    429: "queue_full",
    500: "internal_error",
    503: "unavailable",
}


class Refusal(Exception):
    """A request that is rejected.

    ``code``: a stable word; "" for that of the status. ``field``: the key, header or parameter that is wrong, if any.
    ``retry_after``: seconds after which a retry may succeed. ``allow``: the method that the address takes, for a 405.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        code: str = "",
        field: str = "",
        retry_after: int | None = None,
        allow: str = "",
    ) -> None:
        super().__init__(reason)
        self.code = code or _CODES.get(status, "error")
        self.status, self.reason, self.field, self.retry_after, self.allow = status, reason, field, retry_after, allow

    def document(self, subject: str) -> dict[str, Any]:
        """The problem document; ``subject`` is the endpoint: reports, enrol or commands."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": _TITLES.get(self.status) or _UNREADABLE.get(subject, "The request cannot be read"),
            "status": self.status,
            "code": self.code,
            "detail": f"{self.field}: {self.reason}" if self.field else self.reason,
        }
        if self.field:
            body["errors"] = [{"field": self.field, "code": self.code, "reason": self.reason}]
        return body

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that the status requires."""
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
