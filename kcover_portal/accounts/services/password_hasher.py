"""Password hashing with bounded memory and CPU: Argon2id with OWASP's parameters, few hashes at a time.

Anybody may ask for a hash: each wrong password costs one. Without a bound, the threads of a process would hash at the
same time, and a few requests could exhaust its memory.
"""

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib.auth.hashers import Argon2PasswordHasher

from kcover import reasons
from kcover_portal.accounts.services.tokens import RetryLater

MAX_RUNNING = 2  # hashes at a time in one process
MAX_WAITING = 2  # callers that wait for a place; with the running ones, half of the threads of a `web` process
MAX_WAIT_SECONDS = 3.0
RETRY_AFTER_SECONDS = 5


class TooManyHashes(RetryLater):
    """No place to hash a password became free in time."""

    def __init__(self) -> None:
        wait = reasons.span(timedelta(seconds=RETRY_AFTER_SECONDS))
        super().__init__(reasons.of("hashing_busy", wait=wait), retry_after=RETRY_AFTER_SECONDS)


_running = threading.BoundedSemaphore(MAX_RUNNING)
_present = threading.BoundedSemaphore(MAX_RUNNING + MAX_WAITING)


@contextlib.contextmanager
def _place() -> Iterator[None]:
    """Waits for a place to hash. Raises TooManyHashes."""
    if not _present.acquire(blocking=False):
        raise TooManyHashes
    try:
        if not _running.acquire(timeout=MAX_WAIT_SECONDS):
            raise TooManyHashes
        try:
            yield
        finally:
            _running.release()
    finally:
        _present.release()


class BoundedArgon2PasswordHasher(Argon2PasswordHasher):
    """Argon2id with 19 MiB, two passes and one lane (OWASP Password Storage Cheat Sheet).

    Hashes with other parameters stay valid. Django replaces them at the next sign-in. Both methods raise TooManyHashes.
    """

    memory_cost = 19 * 1024  # KiB
    time_cost = 2
    parallelism = 1

    def encode(self, password: str, salt: str) -> Any:
        with _place():
            return super().encode(password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        with _place():
            return super().verify(password, encoded)
