"""Runs a wave: the first portal is struck at one call in each cluster, and two portals must never act together."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.crash.election import names
from tests.crash.election.clusters import ADMIN, Clusters
from tests.crash.election.points import RELEASE, TAKE, Case
from tests.crash.election.portals import Portal
from tests.crash.points import KILLED

LOOKED_EVERY = 0.05  # seconds
WITHIN_SECONDS = 240.0  # of a wave's stages, on a busy machine
# A call that is held longer than the Lease lasts: the other portal takes over before the call goes on.
HELD_SECONDS = names.LEASE_SECONDS + 2.0


@dataclass(slots=True, kw_only=True)
class Trial:
    """One case in its cluster. ``seconds``: from the failure until a portal acts again."""

    case: Case
    number: int
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Wave:
    """All cases of a wave at the same time, each in its cluster."""

    def __init__(self, clusters: Clusters, portals: tuple[Portal, Portal], cases: Sequence[Case]) -> None:
        self._clusters, (self._struck, self._other) = clusters, portals
        self.trials = [Trial(case=case, number=number) for number, case in enumerate(cases)]

    def run(self) -> list[Trial]:
        """Ends with both portals paused everywhere."""
        self._to_the_calls()
        at = time.monotonic()
        self._other.set_mode("enforce", self._numbers())
        self._strike()
        self._until(lambda: self._acting_again(at), "exactly one portal to act again")
        for portal in (self._struck, self._other):
            portal.set_mode("paused", self._numbers())
        self._until(lambda: not self._look(), "both portals to stop")
        return self.trials

    def _to_the_calls(self) -> None:
        """Brings the first portal to its call in each cluster."""
        for trial in self.trials:
            self._clusters.prepare(trial.number, expired=trial.case.point.step == TAKE)
        begun = [trial.number for trial in self.trials if trial.case.point.acts]
        self._struck.set_mode("enforce", begun)
        self._until(lambda: self._look() == set(begun), "the first portal to act")
        for trial in self.trials:
            self._clusters.plan(trial.number, trial.case)
        self._struck.set_mode("enforce", [trial.number for trial in self.trials if not trial.case.point.acts])
        self._struck.set_mode("paused", [one.number for one in self.trials if one.case.point.step == RELEASE])
        self._until(lambda: all(self._clusters.struck(one.number) for one in self.trials), "the calls to be struck")

    def _strike(self) -> None:
        """Held calls end after their portal, and after the other portal may have taken over."""
        if all(trial.case.failure is not KILLED for trial in self.trials):
            return
        end = time.monotonic() + HELD_SECONDS
        self._until(lambda: time.monotonic() > end, "the Leases to expire")
        self._struck.kill()
        self._clusters.let_go()
        self._struck.start()

    def _acting_again(self, at: float) -> bool:
        acting = self._look()
        for trial in self.trials:
            if trial.number in acting and not trial.seconds:
                trial.seconds = time.monotonic() - at
        return acting == set(self._numbers())

    def _numbers(self) -> list[int]:
        return [trial.number for trial in self.trials]

    def _look(self) -> set[int]:
        """The clusters in which a portal acts; two that act together are noted."""
        first, second = self._struck.acts(), self._other.acts()
        for number in first & second & self._struck.acts():
            self.trials[number].wrong.append(f"both portals act; {self._clusters.holder(number)} holds the Lease")
        return first | second

    def _until(self, so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WITHIN_SECONDS
        while not so():
            if time.monotonic() > end:
                holders = {trial.number: self._clusters.holder(trial.number) for trial in self.trials}
                logs = "\n".join(portal.log()[-3000:] for portal in (self._struck, self._other))
                raise AssertionError(f"waited for {what}; acting: {self._look()}, holders: {holders}\n{logs}")
            self._look()
            time.sleep(LOOKED_EVERY)


def run(clusters: Clusters, portals: tuple[Portal, Portal], waves: Sequence[Sequence[Case]]) -> list[Trial]:
    """Registers the clusters with both portals and runs the waves one after the other."""
    for portal in portals:
        portal.register(clusters.urls, token=ADMIN)
        portal.start()
    return [trial for wave in waves for trial in Wave(clusters, portals, wave).run()]
