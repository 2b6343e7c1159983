"""Errors of the Kubernetes port: either a retry may help, or it does not. Causes are chained."""

from kcover.reasons import Reason


class KubeError(Exception):
    """Base class. ``why``: the request and the response as text, or the portal's own reason; ``str()`` is English."""

    def __init__(self, why: str | Reason) -> None:
        super().__init__(str(why))
        self.why = why


class Unavailable(KubeError):
    """A retry may help: a time-out, a lost connection, 401, 429, 5xx.

    ``retry_after`` is in seconds; None if the server did not send it. ``ambiguous`` is True if a write may have
    happened: read the cluster before retrying.
    """

    def __init__(self, why: str | Reason, *, retry_after: float | None = None, ambiguous: bool = False) -> None:
        super().__init__(why)
        self.retry_after = retry_after
        self.ambiguous = ambiguous


class Conflict(KubeError):
    """The object was changed by others on each try of the verb, which reads it again a limited number of times."""


class NotFound(KubeError):
    """The object does not exist."""


class RefusedByServer(KubeError):
    """The server rejected the request (400, 403, 422 …); a retry does not help."""


class Expired(KubeError):
    """The resource version of the watch is too old (410); list again."""


class BookmarksRefused(Expired):
    """The server refuses watches with bookmarks. List again: later watches of this connection ask for none."""
