"""A file lock that lets one process of this node at a time run checks."""

import contextlib
import errno
import fcntl
import os
import pathlib
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass

POLL_SECONDS = 0.5
# Read-only, because the container of a job may have mounted the folder read-only.
OPEN_FLAGS = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class LockUnavailable(Exception):
    """The lock file cannot be opened, so it is unknown who else is running checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLock:
    """The file that processes of this node lock while they run checks.

    ``shared``: other processes lock the same file, so checks must not start without it. Otherwise the file is in the
    agent's spool; if that is missing, there is no agent to wait for.
    """

    path: pathlib.Path
    shared: bool = False

    def create(self) -> None:
        """Create the file for processes that may not. Errors are ignored here; ``acquire`` reports them."""
        with contextlib.suppress(OSError):
            os.close(_open(self.path))

    @contextlib.contextmanager
    def acquire(self, *, timeout: float) -> Iterator[bool]:
        """Hold the lock; yield whether this process got it.

        Waits up to ``timeout`` seconds for another process, or for the agent to create the file in a folder that this
        process cannot write. Raises LockUnavailable.
        """
        until = time.monotonic() + timeout
        try:
            handle = _open_or_wait(self.path, until=until)
        except OSError as error:
            if self.shared:
                raise LockUnavailable(
                    f"cannot open the lock file for checks on this node, {self.path}: {error.strerror}"
                ) from error
            yield True
            return
        try:
            yield _lock(handle, until=until)
        finally:
            os.close(handle)


def _open_or_wait(path: pathlib.Path, *, until: float) -> int:
    while True:
        try:
            return _open(path)
        except OSError as error:
            left = until - time.monotonic()
            if error.errno != errno.EROFS or left <= 0:
                raise
            time.sleep(min(POLL_SECONDS, left))


def _open(path: pathlib.Path) -> int:
    """Open the file, unless someone has replaced it: links are not followed, pipes are not waited for.

    Raises OSError.
    """
    handle = os.open(path, OPEN_FLAGS, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file")
    return handle


def _lock(handle: int, *, until: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL_SECONDS, left))
        else:
            return True
