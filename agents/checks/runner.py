"""Running checks: one at a time on a node, the heavy ones only where nobody uses the GPUs.

A check that breaks is an error of the check, never taken for a broken node (invariant 42).
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from agents import programs
from agents.checks.host_lock import HostLock, Unlockable
from agents.checks.port import Args, HealthCheck, Skipped
from agents.probes import changes
from agents.probes.finding import Finding
from kcover.fault import Check, Fault

log = logging.getLogger(__name__)

OTHERS = 300.0  # seconds to wait for another process's checks: the agent's, or those before a job


class TooLate(Exception):
    """Other checks ran until it was too late to begin."""


class Runner:
    """The checks of one node. Safe to use from several threads: a second caller waits for the first."""

    def __init__(
        self,
        checks: Iterable[HealthCheck],
        *,
        in_use: Callable[[], Sequence[str]],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        lock: HostLock | None = None,
        patience: float = OTHERS,
    ) -> None:
        """``in_use`` says who uses the GPUs, one line each; it may raise, and then nobody knows. ``lock`` is
        waited for ``patience`` seconds."""
        self.checks: Mapping[str, HealthCheck] = {check.name: check for check in checks}
        self._in_use, self._clock, self._lock, self._patience = in_use, clock, lock, patience
        self._one_at_a_time = threading.Lock()

    def run(self, names: Sequence[str], args: Args, *, before: datetime | None = None) -> list[Check]:
        """The results of the checks in the order of ``names``; one that nobody knows is an error of its own. Raises
        TooLate where the first of them cannot begin ``before`` that time."""
        results: list[Check] = []
        try:
            with self._turn(before) as alone:
                if not alone:
                    return _all(names, "skipped", "another process runs checks on this node")
                for name in names:
                    started = time.monotonic()
                    found = self._run(name, args)
                    log.info("check %s: %s in %.1f s", name, _counts(found), time.monotonic() - started)
                    results += found
        except Unlockable as error:
            return _all(names, "error", str(error))
        return results

    def faults(self, results: Iterable[Check], *, now: datetime) -> list[Fault]:
        """The faults of this node among the results: what failed, where a failure speaks of this node."""
        return [
            changes.fault_of(Finding(check=result, fault=True), now=now, source="check")
            for result in results
            if result.status == "fail" and result.name in self.checks and self.checks[result.name].about_node
        ]

    @contextlib.contextmanager
    def _turn(self, before: datetime | None) -> Iterator[bool]:
        """Whether no other process checks, once no other thread does."""
        seconds = -1.0 if before is None else max(0.0, (before - self._clock()).total_seconds())
        if not self._one_at_a_time.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise TooLate(f"other checks ran until {before} had come")
        try:
            with self._no_other_process() as alone:
                if before is not None and self._clock() >= before:
                    raise TooLate(f"other checks ran until {before} had come")
                yield alone
        finally:
            self._one_at_a_time.release()

    def _no_other_process(self) -> contextlib.AbstractContextManager[bool]:
        if self._lock is None:
            return contextlib.nullcontext(True)
        return self._lock.held(patience=self._patience)

    def _run(self, name: str, args: Args) -> list[Check]:
        check = self.checks.get(name)
        if check is None:
            known = ", ".join(sorted(self.checks)) or "none"
            return [Check(name=name, status="error", message=f"check not supported: {name}; this agent has {known}")]
        try:
            if check.invasive(args):
                self._demand_idle()
            return check.run(args)
        except (Skipped, programs.Missing) as reason:
            return [Check(name=name, status="skipped", message=str(reason))]
        except Exception as error:  # whatever broke, it was the check
            log.warning("check %s broke: %r", name, error)
            return [Check(name=name, status="error", message=f"{type(error).__name__}: {error}"[:1000])]

    def _demand_idle(self) -> None:
        users = self._in_use()
        if users:
            raise Skipped("it would disturb who uses the GPUs: " + "; ".join(users)[:500])


def _all(names: Iterable[str], status: str, message: str) -> list[Check]:
    return [Check(name=name, status=status, message=message) for name in names]


def _counts(results: Sequence[Check]) -> str:
    found = [check.status for check in results]
    return ", ".join(f"{found.count(status)} {status}" for status in dict.fromkeys(found))
