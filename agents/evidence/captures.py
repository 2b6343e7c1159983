"""Runs programs side by side, each with its own time limit, and writes their output to files.

Nothing of the output is in memory, because the agent has little of it. A program that cannot be killed is left behind.
"""

import contextlib
import os
import pathlib
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence

from agents.evidence.parts import Tool
from kcover.evidence.bundle import Section

READ_BYTES = 1 << 16
REAP_SECONDS = 0.5  # for a program that was killed to end; one that hangs in the driver does not


class _Capture:
    """One running program. ``left``: bytes of its output that are still kept."""

    def __init__(self, tool: Tool, path: pathlib.Path, *, started: float, until: float) -> None:
        self.tool, self.started, self.until = tool, started, until
        self.left, self.note = tool.max_bytes, ""
        self.status, self.ended = "ok", started
        self._target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.process: subprocess.Popen[bytes] | None = None
        if shutil.which(tool.command[0]) is None:
            self._close("missing", f"install {tool.install}")
            return
        try:
            self.process = subprocess.Popen(
                tool.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            self._close("failed", str(error.strerror or error))

    def read(self) -> bool:
        """Keep what the program has printed. Return False at its end."""
        assert self.process is not None
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), READ_BYTES)
        if not data:
            self.end()
            return False
        if self.left > 0:
            self.left -= os.write(self._target, data[: self.left])
        elif not self.note:
            self.note = f"cut after {self.tool.max_bytes} bytes"
        return True

    def end(self, *, late: bool = False) -> None:
        """The program has closed its output, or its time is up."""
        assert self.process is not None
        if late:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(REAP_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        if late:
            self._close("late", f"did not end within {self.until - self.started:.0f} s")
        elif self.process.returncode:
            self._close("failed", f"exit status {self.process.returncode}")
        else:
            self._close("ok", self.note)

    def _close(self, status: str, note: str) -> None:
        self.status, self.note, self.ended = status, note, time.monotonic()
        os.close(self._target)

    def section(self) -> Section:
        """How it went."""
        return Section(
            name=self.tool.name,
            status=self.status,
            seconds=round(self.ended - self.started, 2),
            bytes=self.tool.max_bytes - max(self.left, 0),
            note=self.note,
        )


def run(tools: Sequence[tuple[Tool, pathlib.Path]], *, until: float) -> list[Section]:
    """Run the tools at once; return a section for each, in their order. ``until``: by the monotonic clock.

    Raises OSError if a file cannot be written, after it has stopped all tools.
    """
    captures: list[_Capture] = []
    with selectors.DefaultSelector() as selector:
        try:
            for tool, path in tools:
                now = time.monotonic()
                capture = _Capture(tool, path, started=now, until=min(until, now + tool.seconds))
                captures.append(capture)
                if capture.process is not None and capture.process.stdout is not None:
                    selector.register(capture.process.stdout, selectors.EVENT_READ, capture)
            while selector.get_map():
                _read_ready(selector)
        except OSError:
            for key in tuple(selector.get_map().values()):
                key.data.end(late=True)
            raise
    return [capture.section() for capture in captures]


def _read_ready(selector: selectors.BaseSelector) -> None:
    running = [key.data for key in selector.get_map().values()]
    for key, _ in selector.select(max(0.0, min(capture.until for capture in running) - time.monotonic())):
        if not key.data.read():
            selector.unregister(key.fileobj)
    for key in tuple(selector.get_map().values()):
        if time.monotonic() >= key.data.until:
            selector.unregister(key.fileobj)
            key.data.end(late=True)
