"""Injects the failures: calls hang at the simulator, at the other system or at a row's lock; then a process is killed.

So the moments are exact. A call that is a row is held last: its rescue waits at the request before it until all others
hang, and continues to its row right before the failure. A failure meets every call, also one that comes while the
others' rows are awaited. So what came meanwhile is looked for again, and a case whose worker was hit before its row has
missed it.
"""

import time
from collections.abc import Sequence

from tests.crash import diagnosis, row_locks
from tests.crash.installation import Installation
from tests.crash.points import BROKER, FAST, FLUSHED, IMMEDIATE, KILLED
from tests.crash.trials import Trial

ROW_SECONDS = 10.0  # within them a rescue comes from its last request to its row
ROUNDS = 2  # in which rows are caught before a blow: the requests that hang meanwhile have little time
# The worker last: what the others break has come to its end by then.
ORDER = (FLUSHED, BROKER, FAST, IMMEDIATE, KILLED)
HARD = (FAST, IMMEDIATE, KILLED)  # a rescue at work goes on only after its lease


class Blows:
    """The blows that these trials wait for."""

    def __init__(self, product: Installation, trials: Sequence[Trial]) -> None:
        self._product, self._trials = product, trials

    def hanging(self) -> dict[Trial, float]:
        """The trials whose calls hang, with the seconds that they have."""
        _, ages = self._product.faults()
        return {trial: ages[trial.node] for trial in self._trials if trial.aimed and trial.node in ages}

    def all_hang(self, trials: Sequence[Trial], *, seconds: float) -> bool:
        """Returns whether all these trials' calls hang, or one has for so long that the others cannot be waited for."""
        hanging = self.hanging()
        ages = [hanging[trial] for trial in trials if trial in hanging]
        return len(ages) == len(trials) or max(ages, default=0.0) > seconds

    def strike(self) -> None:
        """Does every failure whose cases hang to its process, and lets their calls go on into what is left of it."""
        caught: list[Trial] = []
        for _ in range(ROUNDS):
            rows = [trial for trial in self.hanging() if trial.case and trial.case.point.row]
            missed = self._catch(rows)
            caught += [trial for trial in rows if trial not in missed]
            if not rows:
                break
        hanging = [trial for trial in self.hanging() if trial.case and not trial.case.point.row] + caught
        for failure in ORDER:
            struck = [trial for trial in hanging if trial.case and trial.case.failure is failure]
            if not struck:
                continue
            self._product.strike(failure)
            for trial in struck:
                trial.struck = True
                self._unlock(trial)
                self._product.let_go(trial.node)
            if failure in HARD:
                self._miss_rows()
            if failure in (FAST, IMMEDIATE):
                time.sleep(1.0)  # until the worker has found its connections cut

    def _miss_rows(self) -> None:
        """Notes the rescues that hang before their rows: their workers were just hit there."""
        for trial in self.hanging():
            if trial.case is not None and trial.case.point.row:
                trial.missed = f"its worker was hit at the request before the row: {self._diagnosis(trial)}"
                self._product.let_go(trial.node)

    def let_all_go(self) -> None:
        """Nobody waits for a row any more, whatever becomes of the trials."""
        for trial in self._trials:
            self._unlock(trial)

    def _catch(self, trials: Sequence[Trial]) -> list[Trial]:
        """Lets rescues go on from their last requests to their rows, where they wait; returns those that did not come.

        For «before» their worker waits to write the row; for «after» it is let write it, and waits to note so in its
        step.
        """
        for trial in trials:
            assert trial.case is not None
            trial.lock = row_locks.before(self._product, trial.node, trial.case.point)
            self._product.let_go(trial.node)
        self._wait_at_rows(trials)
        for trial in trials:
            if trial.case is not None and trial.case.after:
                first, trial.lock = trial.lock, row_locks.after(self._product, trial.node, trial.case.point)
                row_locks.let_go(first)
        missed = self._wait_at_rows(trials)
        for trial in missed:
            trial.missed = f"it did not come to its row in {ROW_SECONDS:.0f} s: {self._diagnosis(trial)}"
        for trial in missed:
            self._unlock(trial)
        return missed

    def _diagnosis(self, trial: Trial) -> str:
        locks = {one.lock.info.backend_pid: f"the trial of {one.case}" for one in self._trials if one.lock is not None}
        return diagnosis.of(self._product, trial, locks)

    def _wait_at_rows(self, trials: Sequence[Trial]) -> list[Trial]:
        """Until somebody waits for each of these trials' rows; returns those where nobody does in time."""
        until = time.monotonic() + ROW_SECONDS
        while True:
            waited = row_locks.waited_for(self._product) if trials else frozenset()
            left = [trial for trial in trials if not row_locks.blocks(trial.lock, waited)]
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.05)

    def _unlock(self, trial: Trial) -> None:
        """Lets whoever waits for the row go on."""
        lock, trial.lock = trial.lock, None
        row_locks.let_go(lock)
