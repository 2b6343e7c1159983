"""One call in a process of its own: a deadline, bounded output, and nothing of it left behind."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

PIPE_BYTES: Final = 4096  # an input of at most this size is written without waiting (PIPE_BUF)


class InputTooLong(ValueError):
    """The input does not fit into the pipe."""


def run(program: Path, given: bytes, *, seconds: float, most: int) -> bytes:
    """What a Python program writes to standard output, at most ``most`` bytes, until it ends or is killed.

    ``given``: its standard input. The program gets no environment and no arguments, which other processes could read,
    and none of the portal's modules. Raises OSError if it cannot be started.
    """
    if len(given) > PIPE_BYTES:
        raise InputTooLong(f"{len(given)} bytes of input; at most {PIPE_BYTES}")
    until = time.monotonic() + seconds
    child = subprocess.Popen(
        [sys.executable, "-I", "-X", "utf8", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        start_new_session=True,
    )
    assert child.stdin is not None  # of the pipes above
    assert child.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError), child.stdin:
            child.stdin.write(given)
        return _read(child.stdout.fileno(), until=until, most=most)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.stdout.close()
        child.wait()


def _read(descriptor: int, *, until: float, most: int) -> bytes:
    found = b""
    waiting = select.poll()  # select() fails for a descriptor above 1023
    waiting.register(descriptor, select.POLLIN)
    while len(found) < most:
        ready = waiting.poll(max(until - time.monotonic(), 0) * 1000)
        part = os.read(descriptor, most - len(found)) if ready else b""
        if not part:
            break
        found += part
    return found
