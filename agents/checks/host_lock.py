"""One process of this node at a time, by a locked file."""

import contextlib
import fcntl
import os
import pathlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

POLL = 0.5


class Unlockable(Exception):
    """The file cannot be opened, so that nobody knows who else is at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLock:
    """The file that this node's processes lock while they check.

    ``agreed``: the settings name it as the one that others lock, too, and without it nothing may begin. Else it lies in
    the agent's spool, and where that is not, there is no agent to wait for.
    """

    path: pathlib.Path
    agreed: bool = False

    @contextlib.contextmanager
    def held(self, *, patience: float) -> Iterator[bool]:
        """Whether this process has it, after waiting ``patience`` seconds for another one. Raises Unlockable."""
        try:
            # Read only: a container before a job may have the folder so, and needs no right to write to the node.
            handle = os.open(self.path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if self.agreed:
                raise Unlockable(f"{self.path}: {error.strerror}; checks of this node lock it") from error
            yield True
            return
        try:
            yield _lock(handle, until=time.monotonic() + patience)
        finally:
            os.close(handle)


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
