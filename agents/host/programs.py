"""Running the tools of a node: without a shell, always with a deadline, and without waiting for a child that cannot be
killed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KILL_WAIT_SECONDS = 2.0  # time for a killed child to die; one that hangs in the kernel does not


class ToolMissing(Exception):
    """A tool is not installed on this node. The message says what to install."""


class ProgramTimeout(Exception):
    """A program did not end in time. It was killed, as far as possible; ``process`` is the child."""

    def __init__(self, message: str, *, process: "subprocess.Popen[bytes] | None" = None) -> None:
        super().__init__(message)
        self.process = process


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """The result of a program: exit status (negative: the signal), standard output and standard error as text."""

    status: int
    stdout: str
    stderr: str

    @property
    def diagnostics(self) -> str:
        """Standard error, or standard output if that is empty."""
        return self.stderr.strip() or self.stdout.strip()

    def stdout_or_raise(self, name: str) -> str:
        """Standard output. Raises RuntimeError with the end of its diagnostics if the program failed."""
        if self.status:
            raise RuntimeError(f"{name} exited with status {self.status}: {self.diagnostics[-300:]}")
        return self.stdout


def find(tool: str, *, install: str) -> str:
    """The path of the tool. Raises ToolMissing with what to install."""
    path = shutil.which(tool)
    if path is None:
        raise ToolMissing(f"{tool} is not installed on this node: install {install}")
    return path


def run(command: Sequence[str], *, timeout: float, environ: Mapping[str, str] | None = None) -> ProgramResult:
    """Run a program to its end. Raises ProgramTimeout after ``timeout`` seconds, OSError if it cannot be started."""
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
        raise ProgramTimeout(message, process=process) from expired
    return ProgramResult(
        status=process.returncode, stdout=out.decode(errors="replace"), stderr=err.decode(errors="replace")
    )


def run_module(module: str, *arguments: str, timeout: float, environ: Mapping[str, str] | None = None) -> ProgramResult:
    """Run a module of this agent in a process of its own; see ``run``."""
    # the folder or zip file from which this agent was loaded
    search_path = os.pathsep.join(path for path in sys.path if path)
    command = (sys.executable, "-m", module, *arguments)
    return run(command, timeout=timeout, environ={"PYTHONPATH": search_path, **(environ or {})})


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the program and its children, and close its pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILL_WAIT_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
