"""Supervises child processes: starts them, restarts those that exit, and stops them together.

Each child leads its own process group. A Ctrl-C in the terminal therefore reaches it only through this process, and its
own children end with it.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # before an ended child is restarted
STEADY_SECONDS = 60.0  # a child that ran this long starts again with the shortest delay
STOP_SECONDS = 10.0

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(slots=True, kw_only=True)
class Child:
    """A program to keep running. ``sockets`` are the file descriptors that it inherits."""

    name: str
    command: Sequence[str]
    sockets: Sequence[int] = ()
    running: "subprocess.Popen[bytes] | None" = None
    failures: int = 0
    started_at: float = 0.0
    start_at: float = 0.0


class Children:
    """Starts, supervises and stops the children."""

    def __init__(
        self, children: Sequence[Child], *, folder: Path, environment: Mapping[str, str], say: Callable[[str], object]
    ) -> None:
        self._children = children
        self._folder = folder
        self._environment = dict(environment)
        self._say = say

    def look_after(self, *, now: float) -> None:
        """Starts the children that are due; ``now`` is a time of the monotonic clock."""
        for child in self._children:
            if child.running is not None and child.running.poll() is not None:
                self._ended(child, now=now)
            if child.running is None and now >= child.start_at:
                child.started_at = now
                child.running = self._start(child)

    def stop(self) -> None:
        """Terminates all children, waits, and kills what is left of their process groups."""
        running = [child.running for child in self._children if child.running is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
        for process in running:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, child: Child) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            child.command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            pass_fds=child.sockets,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )

    def _ended(self, child: Child, *, now: float) -> None:
        assert child.running is not None
        status = child.running.returncode
        _signal_group(child.running.pid, signal.SIGTERM)  # orphans of the child
        child.running = None
        child.failures = 1 if now - child.started_at >= STEADY_SECONDS else child.failures + 1
        wait = BACKOFF_SECONDS[min(child.failures, len(BACKOFF_SECONDS)) - 1]
        child.start_at = now + wait
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
        self._say(f"{child.name} {how}; restarting in {wait:g} s")


def end_with_parent() -> None:
    """Called in the child: makes Linux terminate it when its parent dies."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
