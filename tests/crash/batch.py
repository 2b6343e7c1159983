"""Many cases at once, each on a node of its own, in one installation; then what became of every one.

A process is struck while the calls of its cases hang at the simulator, so the moments are exact. The cases that need
longest to come to their call are begun first: then all of a wave hang when it is struck, and nothing else is going on.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.crash import row_locks, spares
from tests.crash.installation import Installation
from tests.crash.plans import HEAL, OTHER, PLANS, PODS, POLICIES
from tests.crash.points import BROKER, FAST, FLUSHED, IMMEDIATE, KILLED, Case
from tests.story.product import call

LATE_SECONDS = 5.0  # so long the calls of the late cases may have hung when the others are begun
STRIKE_SECONDS = 11.0  # and so long, when the strike no longer waits for the rest: the portal waits 15 s for an answer
ARRIVING_SECONDS = 2.5  # but for those that are about to hang
GATHER_SECONDS = 1.5  # what came too late for its wave is struck together with what else hangs so long after it
HELD_SECONDS = 120.0
RELEASED_SECONDS = 60.0
SILENT_SECONDS = 600.0  # an agent heard of so long ago is none that could be asked for a reboot
GRACE = ("--grace-seconds", "2.5")  # a pod that was told to go is still there when its eviction is tried again
SPARES_EVERY = 8  # more nodes are simulated than are hurt: some are spares from the start
# The worker last: what the others break has come to its end by then.
ORDER = (FLUSHED, BROKER, FAST, IMMEDIATE, KILLED)
OPEN = ("waiting", "running")
JOB, PROTECTED = "training.kubeflow.org/job-name", "kcover.io/cascading-recovery"


@dataclass(slots=True, kw_only=True, eq=False)
class Trial:
    """One node on which a plan is carried out, and the case that strikes it; None: nothing does (the control)."""

    node: str
    plan: str
    case: Case | None
    before: dict[str, Any] = field(default_factory=dict)
    struck: bool = False
    helped: bool = False  # what the plan needs from outside was done
    lock: psycopg.Connection[Any] | None = None  # what a call that is a row waits for
    locked: float = 0.0  # since when
    spares: dict[str, dict[str, Any]] = field(default_factory=dict)  # that were promised to the node, as they had been
    began: float = 0.0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def boot(self) -> str:
        """The boot that was running when it began."""
        return str(self.before["status"]["nodeInfo"]["bootID"])

    @property
    def aimed(self) -> bool:
        """Whether it waits for a process to be struck."""
        return self.case is not None and self.case.failure.status is None and not self.struck

    @property
    def row(self) -> bool:
        """Whether its call is a row."""
        return self.case is not None and bool(self.case.point.row)

    def unlock(self) -> None:
        """Lets whoever waits for the row go on."""
        lock, self.lock = self.lock, None
        row_locks.let_go(lock)


def run(product: Installation, waves: Sequence[Sequence[Case]], *, seconds: float) -> list[Trial]:
    """Sets the installation up and tries all cases, wave by wave; each trial is over, or its time (``seconds``) is up.

    The controls, one for each plan, come last and undisturbed.
    """
    cases = [case for wave in waves for case in wave]
    wanted = len(cases) + len(PLANS)
    stand_ins = sum(PLANS[case.point.plan].standby for case in cases) + len(PLANS)
    product.set_up(
        nodes=wanted + wanted // SPARES_EVERY + 8 + stand_ins,
        policies=POLICIES.replace(OTHER, product.other.url),
        boot_seconds=3,
        simulator=["--no-workloads", *GRACE],
    )
    product.guards_off()
    batch = Batch(product, cases)
    try:
        batch.prepare()
        batch.carry_out([len(wave) for wave in waves], deadline=time.monotonic() + seconds)
    finally:
        for trial in batch.trials:
            trial.unlock()
    return batch.trials


class Batch:
    """The trials of one installation."""

    def __init__(self, product: Installation, cases: Sequence[Case]) -> None:
        self._product = product
        wanted: list[tuple[str, Case | None]] = [(case.point.plan, case) for case in cases]
        wanted += [(plan, None) for plan in sorted({case.point.plan for case in cases})]
        query = "SELECT name FROM fleet_node WHERE gpus > 0 AND NOT unschedulable ORDER BY name"
        product.wait(lambda: len(product.rows(query)) >= len(wanted), "the nodes to be listed", seconds=90)
        nodes = [name for (name,) in product.rows(query)]
        self.trials = [
            Trial(node=node, plan=plan, case=case) for node, (plan, case) in zip(nodes, wanted, strict=False)
        ]
        self._loose = nodes[len(self.trials) :]
        self._decider = ""
        self._spares: dict[str, dict[str, Any]] = {}  # every one, as it was

    # --------------------------------------------------------------------------------------------------- beginning

    def prepare(self) -> None:
        """Everything is in place before the first fault: agents, pods, the planned failures."""
        product = self._product
        query = "SELECT count(*) FROM fleet_agent"
        product.wait(lambda: product.rows(query)[0][0] >= len(self.trials), "the agents to report", seconds=90)
        self._decider = product.manage("token", "create", "--kind", "decision", "--cluster", "sim").strip()
        product.share_secret()
        stand_ins = sum(PLANS[trial.plan].standby for trial in self.trials)
        self._spares = spares.make(product, self._loose[:stand_ins])
        for trial in self.trials:
            trial.before = product.sim_node(trial.node)
            for pod in _pods(trial):
                product.kube("POST", "/api/v1/namespaces/default/pods", pod)
            if trial.plan == "job":
                product.post_sim(f"/sim/nodes/{trial.node}/agent", {"running": False})
            if trial.case is not None:
                self._plan(trial, trial.case)
        silent = [trial.node for trial in self.trials if trial.plan == "job"]
        with product.connect() as connection:
            connection.execute(
                "UPDATE fleet_agent SET seen_at = now() - make_interval(secs => %s) "
                "WHERE node_id IN (SELECT id FROM fleet_node WHERE name = ANY(%s))",
                (SILENT_SECONDS, silent),
            )

    def _plan(self, trial: Trial, case: Case) -> None:
        """Prepares what is to meet the case's call."""
        status = "hold" if case.failure.status is None else case.failure.status
        if case.point.hook:
            self._product.other.plan(trial.node, status=status, after=case.after, seconds=HELD_SECONDS)
            return
        planned = case.point.fault(node=trial.node, boot=trial.boot)
        # A row is not asked for at the API server: the rescue is stopped at its last request before, and caught at it.
        after = case.after or bool(case.point.row)
        fault = {**planned, "name": trial.node, "status": status, "after": after, "seconds": HELD_SECONDS}
        self._product.post_sim("/sim/api-faults", fault)

    def _begin(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            trial.began = time.monotonic()
            if trial.plan == "job":
                body = {"nodeName": trial.node, "xid": 62, "escalateTime": "", "actions": HEAL}
                url = self._product.url + "/api/v1/rescue-actions"
                status, answer = call("POST", url, body, token=self._decider)
                assert status == 201, answer
            else:
                cure = {"cure": "reset"} if trial.plan == "mend" else {}
                self._product.inject(trial.node, PLANS[trial.plan].xid, **cure)

    # ---------------------------------------------------------------------------------------------------- striking

    def carry_out(self, sizes: Sequence[int], *, deadline: float) -> None:
        """Hurts the nodes of each wave, strikes when their calls hang, and returns when every rescue has ended."""
        rest = self.trials
        for size in sizes:
            wave, rest = rest[:size], rest[size:]
            aimed = [trial for trial in wave if trial.aimed]
            late = [trial for trial in aimed if trial.case and trial.case.point.late]
            self._begin(late)
            self._until(lambda late=late: self._all_hang(late, seconds=LATE_SECONDS), deadline=deadline)
            self._begin([trial for trial in wave if trial not in late])
            self._until(lambda aimed=aimed: self._all_hang(aimed, seconds=STRIKE_SECONDS), deadline=deadline)
            self._strike()
        self._begin(rest)
        self._until(self._over, deadline=deadline)
        self._give_back()

    def _give_back(self) -> None:
        """A person releases every standby when all is over: it is to be as it was."""
        of = {trial.node: trial for trial in self.trials}
        for origin, spare in spares.release(self._product):
            of[origin].spares[spare] = self._spares[spare]
        self._until(lambda: spares.are_released(self._product), deadline=time.monotonic() + RELEASED_SECONDS)

    def _until(self, so: Callable[[], bool], *, deadline: float) -> None:
        """Looks until it is so or the time is up; does meanwhile what plans and cases need."""
        while time.monotonic() < deadline:
            dead = [f"{name}: {p.returncode}" for name, p in self._product.processes.items() if p.poll() is not None]
            assert not dead, f"ended by itself: {dead}\n{self._product.logs()}"
            with contextlib.suppress(psycopg.OperationalError, OSError):  # a server that was just struck
                self._help()
                self._lock()
                if so():
                    return
            time.sleep(0.1)

    def _all_hang(self, trials: Sequence[Trial], *, seconds: float) -> bool:
        """Whether the calls of all these trials hang; or one has for so long that the others cannot be waited for."""
        hanging = self._hanging()
        ages = [hanging[trial] for trial in trials if trial in hanging]
        more = ARRIVING_SECONDS if self._arriving() else 0.0
        return len(ages) == len(trials) or max(ages, default=0.0) > seconds + more

    def _arriving(self) -> bool:
        """Whether some trial has left its last request before a row and not come to it: a blow now would miss it."""
        rows = [trial for trial in self.trials if trial.aimed and trial.row]
        if not rows:
            return False
        waited, (_, hanging) = row_locks.waited_for(self._product), self._product.faults()
        return any(
            trial.node in hanging if trial.lock is None else not row_locks.blocks(trial.lock, waited) for trial in rows
        )

    def _strike(self) -> None:
        """Does every failure whose cases hang to its process, and lets their calls go on into what is left of it."""
        for failure in ORDER:
            struck = [trial for trial in self._hanging() if trial.case and trial.case.failure is failure]
            if not struck:
                continue
            self._product.strike(failure)
            for trial in struck:
                trial.struck = True
                trial.unlock()
                self._product.let_go(trial.node)
            if failure in (FAST, IMMEDIATE):
                time.sleep(1.0)  # until the worker has found its connections cut

    def _hanging(self) -> dict[Trial, float]:
        """The trials that wait for their blow and whose calls hang, with the seconds that they have."""
        _, ages = self._product.faults()
        aimed = {trial.node: trial for trial in self.trials if trial.aimed}
        found = {aimed[node]: age for node, age in ages.items() if node in aimed and not aimed[node].row}
        now, locked = time.monotonic(), [trial for trial in aimed.values() if trial.locked]
        waited = row_locks.waited_for(self._product) if locked else frozenset()
        at_rows = [trial for trial in locked if row_locks.blocks(trial.lock, waited)]
        return found | {trial: now - trial.locked for trial in at_rows}

    def _over(self) -> bool:
        """Whether every rescue has ended; strikes what came too late for its wave."""
        more = ARRIVING_SECONDS if self._arriving() else 0.0
        if any(age > GATHER_SECONDS + more for age in self._hanging().values()):
            self._strike()
        return all(trial.seconds for trial in self.trials)

    def _lock(self) -> None:
        """Catches those at the agent's row that have come to the last request before it.

        Their worker waits to write the row; for «after» it is let write it, and waits to note so in its step.
        """
        rows = [trial for trial in self.trials if trial.aimed and trial.row]
        if not rows:
            return
        waited, (_, hanging) = row_locks.waited_for(self._product), self._product.faults()
        for trial in rows:
            if trial.case is None:
                continue
            if trial.lock is None and trial.node in hanging:
                trial.lock = row_locks.before(self._product, trial.node, trial.case.point)
                self._product.let_go(trial.node)
            elif not trial.locked and row_locks.blocks(trial.lock, waited):
                first = trial.lock
                if trial.case.after:
                    trial.lock = row_locks.after(self._product, trial.node, trial.case.point)
                    row_locks.let_go(first)
                trial.locked = time.monotonic()

    def _help(self) -> None:
        """Does what plans need from outside, and notes which are over."""
        product, rescues = self._product, rescues_of(self._product)
        boots = {row["name"]: row["boot_id"] for row in call("GET", product.sim + "/sim/nodes")[1]["nodes"]}
        for trial in self.trials:
            mine = rescues.get(trial.node, [])
            states = [state for _, state, _ in mine]
            if states == ["held"] and self._ordered_in_vain(trial):
                status, answer = product.post(f"/api/v1/rescues/{mine[0][0]}/retry", {"reason": "nobody has it"})
                trial.helped = status < 300
                assert status < 300 or status >= 500, answer
                continue
            if trial.plan == "job" and not trial.helped and boots[trial.node] != trial.boot:
                product.post_sim(f"/sim/nodes/{trial.node}/agent", {"running": True})
                trial.helped = True
            if trial.plan == "taint" and not trial.helped and states == ["succeeded"]:
                status, answer = product.post(f"/api/v1/nodes/sim/{trial.node}/release", {"reason": "looked at"})
                trial.helped = status < 300
                assert status < 300 or status >= 500, answer
            if len(states) >= len(PLANS[trial.plan].ends) and not set(states) & set(OPEN) and not trial.seconds:
                trial.seconds = time.monotonic() - trial.began

    def _ordered_in_vain(self, trial: Trial) -> bool:
        """Whether the other system never took the order, so that a person may give it once more."""
        hook = trial.case is not None and trial.case.point.hook
        return hook and not trial.helped and not self._product.other.taken[trial.node]


def rescues_of(product: Installation) -> dict[str, list[tuple[int, str, str]]]:
    """The rescues of each node, oldest first: id, state, outcome."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    query = (
        "SELECT n.name, r.id, r.state, r.outcome FROM rescue_rescue r "
        "JOIN fleet_node n ON n.id = r.node_id ORDER BY r.id"
    )
    for node, pk, state, outcome in product.rows(query):
        found.setdefault(node, []).append((pk, state, outcome))
    return found


def _pods(trial: Trial) -> Iterator[dict[str, Any]]:
    """What runs on the node."""
    plan, container = PLANS[trial.plan], {"name": "main", "image": "registry.example/train:1", "resources": {}}
    loose = [(letter, {}) for letter in PODS if plan.drained]
    jobs = [("job", {JOB: trial.node, PROTECTED: "true"})] if plan.jobs else []
    for name, labels in [*loose, *jobs]:
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{trial.node}-{name}", "namespace": "default", "labels": labels},
            "spec": {
                "nodeName": trial.node,
                "containers": [container],
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 30,
            },
        }
