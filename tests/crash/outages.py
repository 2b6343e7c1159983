"""``python -m tests.crash.outages``: two of every process heal a cluster while each of them, and each server, fails.

Faults are injected one after the other. In between, each process is killed and started again, Redis and PostgreSQL
restart, and the API server is away for a minute. In the end nothing was done twice, every fault has its rescue, every
event has arrived, and the audit log verifies.
"""

import argparse
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from tests.crash import installation, setup, verdicts
from tests.crash.batch import GRACE, REPORTS_A_SECOND, Course
from tests.crash.people import People
from tests.crash.plans import OTHER, POLICIES
from tests.crash.replicas import Replicas
from tests.crash.trials import Trial

MIX = ("agent", "mend", "cycle", "tell")  # the plans of the faults, one after the other
CHANNEL = "everything"
OPENED, CLOSED = ("incident.opened", "agent.silent"), ("incident.closed", "agent.back")
STARTED, ENDED = ("rescue.opened",), ("rescue.healed", "rescue.ended", "rescue.failed")
BOOT_SECONDS = 3
ARRIVE_SECONDS = 240.0  # after the last rescue has ended: its deliveries, with their retries


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """``nodes``: of the cluster. ``away``: seconds without the API server. ``gap``: seconds from a fault to the outage
    that follows, and from an outage to the next fault."""

    nodes: int = 1000
    faults: int = 20
    away: float = 60.0
    gap: float = 4.0
    mix: Sequence[str] = MIX
    seconds: float = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``wrong``: what is not as it should be. ``events``, ``deliveries`` and ``repeats``: as the receiver counted."""

    wrong: list[str]
    seconds: float
    events: int
    deliveries: int
    repeats: int
    servers: str


def run(product: Replicas, size: Size, *, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Sets the installation up, goes through all outages, and judges what is there in the end."""
    began = time.monotonic()
    product.set_up(
        nodes=size.nodes,
        policies=POLICIES.replace(OTHER, product.other.url),
        boot_seconds=BOOT_SECONDS,
        simulator=["--no-workloads", *GRACE, "--heartbeat-seconds", str(max(2.0, size.nodes / REPORTS_A_SECOND))],
    )
    product.guards_off()
    product.add_machine_driver()
    product.send_every_event(CHANNEL)
    agents = "SELECT count(*) FROM fleet_agent"
    product.wait(lambda: product.rows(agents)[0][0] >= size.nodes, "every agent to report", seconds=600)
    tell(f"{size.nodes} nodes report")
    plans = [*size.mix, *islice(cycle(size.mix), size.faults)]
    query = "SELECT name FROM fleet_node WHERE gpus > 0 AND NOT unschedulable ORDER BY name"
    names = [name for (name,) in product.rows(query)]
    trials = [Trial(node=name, plan=plan, case=None) for name, plan in zip(names, plans, strict=False)]
    controls, faults = trials[: len(size.mix)], trials[len(size.mix) :]
    prepared = setup.prepare(product, trials, loose=names[len(trials) :])
    OutageCourse(product, [trials], prepared, seconds=size.seconds).go(controls, faults, size=size, tell=tell)
    audit = product.audit()
    verdicts.judge(product, trials, audit, undisturbed=controls)
    wrong = [f"{trial.node} ({trial.plan}): {text}" for trial in trials for text in trial.wrong]
    return Outcome(
        wrong=[*wrong, *notification_problems(product, trials)],
        seconds=time.monotonic() - began,
        events=sum(map(len, product.other.heard.values())),
        deliveries=len(product.other.heard),
        repeats=sum(count - 1 for count in product.other.arrivals.values()),
        servers=product.versions(),
    )


class OutageCourse(Course):
    """Faults and outages in turn."""

    _product: Replicas

    def go(
        self, controls: Sequence[Trial], faults: Sequence[Trial], *, size: Size, tell: Callable[[str], None]
    ) -> None:
        """The controls heal undisturbed; then the faults are spread over the outages. Returns when all is over."""
        self._people = People(self._product, self._trials)
        for trial in controls:
            self._begin(trial)
        self._until(lambda: all(trial.seconds for trial in controls), seconds=self._seconds)
        tell("undisturbed, all is well")
        outages = list(self._outages(size))
        for index, (words, outage) in enumerate(outages):
            first, last = (-(-len(faults) * n // len(outages)) for n in (index, index + 1))
            for trial in faults[first:last]:
                self._begin(trial)
            self._pause(size.gap)
            outage()
            tell(f"{words}; {sum(bool(trial.began) for trial in faults)} faults so far")
            self._pause(size.gap)
        self._until(lambda: all(trial.seconds for trial in self._trials), seconds=self._seconds)
        for trial in self._trials:
            trial.given_up = not trial.over
        tell("every rescue has ended")
        self._give_back()
        self._until(lambda: not notification_problems(self._product, faults), seconds=ARRIVE_SECONDS)

    def _outages(self, size: Size) -> Iterator[tuple[str, Callable[[], None]]]:
        product = self._product
        for name in product.names:
            yield f"{name} killed", lambda name=name: product.restart(name)  # type: ignore[misc]
        yield "Redis killed", product.restart_redis
        yield "PostgreSQL aborted", product.restart_postgres
        yield f"API server away for {size.away:.0f} s", lambda: product.take_api_away(size.away)

    def _pause(self, seconds: float) -> None:
        """People look after their nodes meanwhile."""
        self._until(lambda: False, seconds=seconds)


def notification_problems(product: Replicas, trials: Sequence[Trial]) -> list[str]:
    """The events that did not arrive, or under two delivery ids. A repetition has the id of the delivery it repeats."""
    arrived: dict[tuple[str, int], set[str]] = {}
    for delivery, events in product.other.heard.items():
        for event in events:
            arrived.setdefault((event["kind"], event["record"]), set()).add(delivery)
    nodes = [trial.node for trial in trials]
    found = [
        f"{kinds[0]} {record} of {node} has not arrived"
        for kinds, record, node in _due(product, nodes)
        if not any((kind, record) in arrived for kind in kinds)
    ]
    found += [f"{event} is in {len(of)} deliveries" for event, of in arrived.items() if len(of) > 1]
    states = Counter(state for (state,) in product.rows("SELECT state FROM notify_delivery WHERE state <> 'sent'"))
    return found + [f"{count} deliveries are {state}" for state, count in states.items()]


def _due(product: Replicas, nodes: Sequence[str]) -> Iterator[tuple[Sequence[str], int, str]]:
    """The expected events of these nodes: the kinds of which one is due, the record, and the node."""
    query = "SELECT i.id, n.name FROM incidents_incident i JOIN fleet_node n ON n.id = i.node_id WHERE n.name = ANY(%s)"
    for record, node in product.rows(query, nodes):
        yield OPENED, record, node
        yield CLOSED, record, node
    query = "SELECT r.id, n.name FROM rescue_rescue r JOIN fleet_node n ON n.id = r.node_id WHERE n.name = ANY(%s)"
    for record, node in product.rows(query, nodes):
        yield STARTED, record, node
        yield ENDED, record, node


def main() -> int:
    """The exit status is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.outages", description=__doc__)
    given = Size()
    parser.add_argument("--nodes", type=int, default=given.nodes, help=f"of the simulated cluster ({given.nodes})")
    parser.add_argument("--faults", type=int, default=given.faults, help=f"that are injected ({given.faults})")
    parser.add_argument("--away", type=float, default=given.away, help="seconds without the API server (60)")
    parser.add_argument("--gap", type=float, default=given.gap, help="seconds between faults and outages (4)")
    parser.add_argument("--seconds", type=float, default=given.seconds, help="until what has not ended is given up")
    parser.add_argument("--logs", type=Path, help="a folder for what the processes print")
    options = parser.parse_args()
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # the relays carry a connection of each agent, twice
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # nothing is left running
    size = Size(nodes=options.nodes, faults=options.faults, away=options.away, gap=options.gap, seconds=options.seconds)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            with installation.running_as(Replicas, folder) as product:
                outcome = run(product, size, tell=lambda text: _say(text, began))
        finally:
            if options.logs:
                options.logs.mkdir(parents=True, exist_ok=True)
                for log in folder.glob("*.log"):
                    shutil.copy(log, options.logs)
    for text in outcome.wrong:
        print(f"  {text}", flush=True)
    print(
        f"{size.nodes} nodes, {size.faults} faults, {outcome.seconds:.0f} s, {outcome.servers}: "
        f"{outcome.events} events in {outcome.deliveries} deliveries, {outcome.repeats} of them sent again; "
        f"{len(outcome.wrong)} problems"
    )
    return 1 if outcome.wrong else 0


def _say(text: str, began: float) -> None:
    print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
