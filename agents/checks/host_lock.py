"""One process of this node at a time, by a locked file."""

import contextlib
import fcntl
import os
import pathlib
import time
from collections.abc import Iterator

POLL = 0.5


@contextlib.contextmanager
def held(path: pathlib.Path, *, patience: float) -> Iterator[bool]:
    """Whether this process has it, after waiting ``patience`` seconds for another one. Where the file cannot be opened,
    there is no folder that an agent shares, and so nobody to wait for."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
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
