"""A test's side of ``tests.story.forking``."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "TEST_FORKS"  # set by `make test`; `make bench`, `make crash` and `make outages` start each process anew


class Fork:
    """A process that was forked, as far as tests use ``subprocess.Popen``."""

    def __init__(self, pid: int, status: Callable[[int], int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._ends = os.pidfd_open(pid)  # readable when the process has ended

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        if self.returncode is None and self._has_ended(0):
            self.returncode = self._status(self.pid)
            os.close(self._ends)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, when it has ended. Raises TimeoutExpired after ``timeout`` seconds."""
        if self.returncode is None and not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Nothing happens to a process that has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._ends, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, seconds: float | None) -> bool:
        looks = select.poll()
        looks.register(self._ends, select.POLLIN)
        return bool(looks.poll(None if seconds is None else seconds * 1000))


class Forks:
    """The process that forks, with the environment of all of them; ``log``: what it prints; ``keep``: open files."""

    def __init__(self, environment: Mapping[str, str], *, log: Path, keep: Sequence[int]) -> None:
        self.environment = dict(environment)
        self._lock = threading.Lock()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.story.forking"],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                pass_fds=keep,
            )

    def commands(self, commands: Sequence[Sequence[str]]) -> list[str] | None:
        """What each management command printed; None if one failed."""
        return self._ask({"commands": commands})

    def start(self, arguments: Sequence[str], *, log: Path, keep: Sequence[int]) -> Fork:
        """Starts Python with these arguments in a session of its own, which prints to ``log``."""
        return Fork(self._ask({"start": arguments, "log": str(log), "keep": keep}), self._status_of)

    def close(self) -> None:
        """Ends the process that forks; what it forked goes on."""
        self._process.communicate()  # the end of its input is its end

    def _status_of(self, pid: int) -> int:
        return int(self._ask({"status": pid}))

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        with self._lock:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        assert answer, f"{sys.executable} -m tests.story.forking ended with {self._process.wait()}"
        return json.loads(answer)
