"""Runs health checks: one at a time on a node, and heavy ones only if no process uses the GPUs.

A check that breaks is an error of the check, and never counts as a broken node.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from agents.checks.health_check import Args, CheckSkipped, HealthCheck
from agents.checks.host_lock import HostLock, LockUnavailable
from agents.host import programs
from agents.probes import changes
from agents.probes.finding import Finding
from kcover.faults.fault import Check, Fault

log = logging.getLogger(__name__)

OTHER_PROCESS_TIMEOUT_SECONDS = 300.0  # for checks of another process: of the agent, or of a job that starts


class CheckExpired(Exception):
    """Other checks ran until it was too late to start."""


class CheckRunner:
    """The checks of one node. Thread-safe: a second caller waits for the first."""

    def __init__(
        self,
        checks: Iterable[HealthCheck],
        *,
        gpu_users: Callable[[], Sequence[str]],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        lock: HostLock | None = None,
        lock_timeout: float = OTHER_PROCESS_TIMEOUT_SECONDS,
    ) -> None:
        """``gpu_users`` returns one line for each user of the GPUs; if it raises, the users are unknown.

        ``lock``: waited for at most ``lock_timeout`` seconds.
        """
        self.checks: Mapping[str, HealthCheck] = {check.name: check for check in checks}
        self._gpu_users, self._clock, self._lock, self._lock_timeout = gpu_users, clock, lock, lock_timeout
        self._thread_lock = threading.Lock()

    def run(self, names: Sequence[str], args: Args, *, start_before: datetime | None = None) -> list[Check]:
        """The results of the checks, in the order of ``names``. An unknown name gives an error result. Raises
        CheckExpired if the first check cannot start before ``start_before``."""
        results: list[Check] = []
        try:
            with self._exclusive(start_before) as alone:
                if not alone:
                    return _same_for_all(names, "skipped", "another process runs checks on this node")
                for name in names:
                    started = time.monotonic()
                    checks = self._run(name, args)
                    log.info("check %s: %s in %.1f s", name, _counts(checks), time.monotonic() - started)
                    results += checks
        except LockUnavailable as error:
            return _same_for_all(names, "error", str(error))
        return results

    def faults(self, results: Iterable[Check], *, now: datetime) -> list[Fault]:
        """The faults of this node among the results: failures of checks that speak of this node."""
        return [
            changes.fault_from(Finding(check=result, is_fault=True), now=now, source="check")
            for result in results
            if result.status == "fail" and result.name in self.checks and self.checks[result.name].failure_is_node_fault
        ]

    @contextlib.contextmanager
    def _exclusive(self, start_before: datetime | None) -> Iterator[bool]:
        """Wait for the checks of other threads. Yield True if no other process runs checks."""
        seconds = -1.0 if start_before is None else max(0.0, (start_before - self._clock()).total_seconds())
        if not self._thread_lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise CheckExpired(f"other checks ran until {start_before}, when the command expired")
        try:
            with self._process_lock() as alone:
                if start_before is not None and self._clock() >= start_before:
                    raise CheckExpired(f"other checks ran until {start_before}, when the command expired")
                yield alone
        finally:
            self._thread_lock.release()

    def _process_lock(self) -> contextlib.AbstractContextManager[bool]:
        if self._lock is None:
            return contextlib.nullcontext(True)
        return self._lock.acquire(timeout=self._lock_timeout)

    def _run(self, name: str, args: Args) -> list[Check]:
        check = self.checks.get(name)
        if check is None:
            known = ", ".join(sorted(self.checks)) or "none"
            return [Check(name=name, status="error", message=f"check not supported: {name}; this agent has {known}")]
        try:
            if check.invasive(args):
                self._require_idle_gpus()
            return check.run(args)
        except (CheckSkipped, programs.ToolMissing) as reason:
            return [Check(name=name, status="skipped", message=str(reason))]
        except Exception as error:  # any error here is the check's, not the node's
            log.warning("check %s raised an error: %r", name, error)
            return [Check(name=name, status="error", message=f"{type(error).__name__}: {error}"[:1000])]

    def _require_idle_gpus(self) -> None:
        users = self._gpu_users()
        if users:
            raise CheckSkipped("the GPUs are in use: " + "; ".join(users)[:500])


def _same_for_all(names: Iterable[str], status: str, message: str) -> list[Check]:
    return [Check(name=name, status=status, message=message) for name in names]


def _counts(results: Sequence[Check]) -> str:
    checks = [check.status for check in results]
    return ", ".join(f"{checks.count(status)} {status}" for status in dict.fromkeys(checks))
