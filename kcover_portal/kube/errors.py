"""What can go wrong at the Kubernetes boundary: ask later, or asking again will not help. Causes are chained."""


class KubeError(Exception):
    """Base of all. ``str()`` is for people: what was asked, and what came back."""


class Unavailable(KubeError):
    """Ask later: a time-out, a cut connection, 401, 429, 5xx.

    ``retry_after`` is in seconds, None when the server named none. ``ambiguous`` is True when a write may have
    happened: look at the cluster before asking again.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, ambiguous: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.ambiguous = ambiguous


class Conflict(KubeError):
    """Others kept changing the object; reading it again inside the verb, a bounded number of times, did not cure it."""


class NotFound(KubeError):
    """No such object."""


class RefusedByServer(KubeError):
    """The server understood and said no (400, 403, 422 …): asking again will not help."""


class Expired(KubeError):
    """The watch's resource version is older than what the server keeps (410): list again."""
