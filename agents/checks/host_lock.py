"""One process of this node at a time, by a locked file."""

import contextlib
import errno
import fcntl
import os
import pathlib
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass

POLL = 0.5
# Read only: a container before a job may have the folder so, and needs no right to write to the node.
FLAGS = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Unlockable(Exception):
    """The file cannot be opened, so that nobody knows who else is at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLock:
    """The file that this node's processes lock while they check.

    ``agreed``: it is the one that others lock, too, and without it nothing may begin. Else it lies in the agent's
    spool, and where that is not, there is no agent to wait for.
    """

    path: pathlib.Path
    agreed: bool = False

    def make(self) -> None:
        """Makes the file where it is not there yet, for those who may not. Where that fails, who locks it says so."""
        with contextlib.suppress(OSError):
            os.close(_opened(self.path))

    @contextlib.contextmanager
    def held(self, *, patience: float) -> Iterator[bool]:
        """Whether this process has it, after waiting ``patience`` seconds for another one, or for the agent to make the
        file in a folder that this process cannot write. Raises Unlockable."""
        until = time.monotonic() + patience
        try:
            handle = _made(self.path, until=until)
        except OSError as error:
            if self.agreed:
                raise Unlockable(f"{self.path}: {error.strerror}; checks of this node lock it") from error
            yield True
            return
        try:
            yield _lock(handle, until=until)
        finally:
            os.close(handle)


def _made(path: pathlib.Path, *, until: float) -> int:
    while True:
        try:
            return _opened(path)
        except OSError as error:
            left = until - time.monotonic()
            if error.errno != errno.EROFS or left <= 0:
                raise
            time.sleep(min(POLL, left))


def _opened(path: pathlib.Path) -> int:
    """The file, and never what somebody else put in its place: no link is followed, no pipe is waited for. Raises
    OSError."""
    handle = os.open(path, FLAGS, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file")
    return handle


def _lock(handle: int, *, until: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL, left))
        else:
            return True
