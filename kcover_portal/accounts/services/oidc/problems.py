"""Refusals of single sign-on, and the limit of concurrent sign-ins."""

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus

from kcover import reasons
from kcover_portal.accounts.services.tokens import Refused, RetryLater

MAX_RUNNING = 4  # calls to the provider at a time in one process; a slow provider occupies no more threads
RETRY_AFTER_SECONDS = 5


class SignOnRefused(Refused):
    """The single sign-on failed.

    ``status``: the HTTP status of the answer; 502 and 503 if the provider is at fault, else 400 or 403.
    """

    def __init__(self, reason: reasons.Reason, *, status: int = 400) -> None:
        super().__init__(reason)
        self.status = HTTPStatus(status)


class Busy(RetryLater):
    """Too many calls to the provider are running."""

    def __init__(self) -> None:
        wait = reasons.span(timedelta(seconds=RETRY_AFTER_SECONDS))
        super().__init__(reasons.of("oidc_busy", wait=wait), retry_after=RETRY_AFTER_SECONDS)


_running = threading.BoundedSemaphore(MAX_RUNNING)


@contextlib.contextmanager
def place() -> Iterator[None]:
    """Bounds the threads that wait for the provider. Raises Busy."""
    if not _running.acquire(blocking=False):
        raise Busy
    try:
        yield
    finally:
        _running.release()
