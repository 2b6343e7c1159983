"""Running the tools of a node: no shell, always a deadline, and nothing waits for a child that cannot be killed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GRACE = 2.0  # seconds that a killed child gets to die; one that hangs inside the kernel does not


class Missing(Exception):
    """A tool is not on this node; the text says what to install."""


class TookTooLong(Exception):
    """A program did not end within its deadline and was killed, as far as it can be: ``process`` tells."""

    def __init__(self, message: str, *, process: "subprocess.Popen[bytes] | None" = None) -> None:
        super().__init__(message)
        self.process = process


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended: exit status (negative: the signal), and what it said, as text."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The error output, or the output where there is none."""
        return self.err.strip() or self.out.strip()

    def output(self, name: str) -> str:
        """What it printed. Raises RuntimeError with its last words where it failed."""
        if self.status:
            raise RuntimeError(f"{name} ended with {self.status}: {self.said[-300:]}")
        return self.out


def find(tool: str, *, install: str) -> str:
    """The tool's path; raises Missing with what to install."""
    path = shutil.which(tool)
    if path is None:
        raise Missing(f"{tool} is not on this node: install {install}")
    return path


def run(command: Sequence[str], *, timeout: float, environ: Mapping[str, str] | None = None) -> Ended:
    """Runs a program to its end. Raises TookTooLong after ``timeout`` seconds, OSError where it cannot be started."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environ} if environ else None,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as expired:
        _kill(process)
        message = f"{os.path.basename(command[0])} did not end within {timeout:g} s"
        raise TookTooLong(message, process=process) from expired
    return Ended(status=process.returncode, out=out.decode(errors="replace"), err=err.decode(errors="replace"))


def run_own(module: str, *arguments: str, timeout: float, environ: Mapping[str, str] | None = None) -> Ended:
    """Runs a module of this agent in a process of its own; see ``run``."""
    here = os.pathsep.join(path for path in sys.path if path)  # where this agent came from: a folder, or one file
    command = (sys.executable, "-m", module, *arguments)
    return run(command, timeout=timeout, environ={"PYTHONPATH": here, **(environ or {})})


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """The program and what it started; its pipes are let go of."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
