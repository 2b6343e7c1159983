"""The work on plans of pair tests: begin what is due, read what has ended, confirm suspects, judge, clean up.

A worker holds the plan's lease while it calls the cluster, and looks at lease, plan and mode again before each call.
Each state change is a conditional update, so a worker that comes back late changes nothing. A worker may die anywhere:
the names of Jobs follow from the rows, so the next one finds or creates them, and Jobs of tests that have ended are
deleted until none is left. A test without an answer is no failure: only a measured bandwidth counts.
"""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from kcover import reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.lib import doorbell
from kcover_portal.preflight.models import PairPlan, PairTest
from kcover_portal.preflight.services import nccl_plans, pair_verdicts, testable
from kcover_portal.preflight.services.pair_jobs import (
    Clock,
    Ended,
    PairJobs,
    Pods,
    Stopped,
    end_of,
    names,
    names_of_places as names_of,
)
from kcover_portal.runtime.services import claims, retention

log = logging.getLogger(__name__)

MAX_RUNNING_TESTS = 32  # of one plan
LEASE = timedelta(seconds=30)  # renewed before each write; longer than one call takes
WAIT_LIMIT = timedelta(minutes=10)  # for nodes that cannot be tested; then the test is not run
WAIT_POLL = timedelta(seconds=20)
SILENT_POLL = timedelta(seconds=5)  # while the mode forbids calls, or the cluster does not answer
CLEANUP_POLL = timedelta(seconds=10)
JOBS_KEPT = timedelta(hours=25)  # the cluster deletes Jobs a day after they ended
GIVEN_UP = reasons.known(
    *("pair_node_busy", "pair_node_not_ready", "pair_node_in_rescue", "pair_node_excluded", "pair_node_gone")
)

CLAIMS = claims.Claims(
    model=PairPlan,
    due=lambda now: PairPlan.objects.filter(cleaned=False),
    lasts=LEASE,
    mark="worker",
    lease="busy_until",
    related=("cluster",),
)
State, TestState = PairPlan.State, PairTest.State


def advance(plan_id: int, *, clock: Clock) -> None:
    """Takes a plan one step further. Safe to call at any time, by any number of workers."""
    plan = CLAIMS.take(plan_id, now=clock())
    if plan is None:
        return
    later: timedelta | None = SILENT_POLL
    try:
        work = _Work(plan, clock=clock)
        if plan.state == State.RUNNING:
            work.advance()
            later = None
        else:
            work.clean()
            later = CLEANUP_POLL
    except Stopped as stopped:
        log.info("%s waits: %s", plan, stopped)
    except port.KubeError as error:
        log.warning("%s waits: %s", plan, error)
    finally:
        if not CLAIMS.put_back(plan, again_at=None if later is None else clock() + later):
            CLAIMS.release(plan)  # if it ended meanwhile, its Jobs are to be deleted at once


def prune(*, now: datetime) -> None:
    """Deletes old plans."""
    PairPlan.objects.filter(cleaned=True, finished_at__lt=retention.before(PairPlan, now=now)).delete()


class _Work:
    """What one worker does for a plan."""

    def __init__(self, plan: PairPlan, *, clock: Clock) -> None:
        self._plan, self._clock = plan, clock
        self._jobs = PairJobs(plan, allowed=self._check, clock=clock)

    def advance(self) -> None:
        """Reads what has ended, begins what is due. Raises Stopped, port.KubeError."""
        self._check()
        plan = self._plan
        running = self._tests(TestState.RUNNING)
        pods = self._jobs.pods()
        ended = {
            test.pk: test
            for test in running
            if (end := end_of(test, pods.get(test.place, {}), now=self._clock())) and self._store(test, end)
        }
        running = [test for test in running if test.pk not in ended]
        self._delete_ended(ended.values(), running, pods)
        for test in running:
            if len(pods.get(test.place, {})) < len(test.nodes):  # its worker may have died before it called
                self._create(test)
        pending = self._tests(TestState.PENDING)
        if pending:
            self._begin_due(pending, running, pods)
        elif not running:
            validates = plan.rule == PairPlan.Rule.VALIDATION
            if (nccl_plans if validates else pair_verdicts).go_on(plan, now=self._clock()):
                doorbell.ring("preflight.advance_plan", plan.pk)
            doorbell.publish("preflight", plan.pk, cluster=plan.cluster.name)

    def clean(self) -> None:
        """Deletes the Jobs that are left. Raises Stopped, port.KubeError."""
        now, ended = self._clock(), self._plan.finished_at or self._clock()
        if now >= ended + JOBS_KEPT:
            CLAIMS.write(self._plan, cleaned=True)
            return
        self._check()
        left = self._jobs.left()
        self._jobs.delete(left)
        # Until its lease ran out, another worker may have created one more.
        if not left and now >= ended + LEASE:
            CLAIMS.write(self._plan, cleaned=True)

    def _check(self) -> None:
        """Renews the lease. Raises Stopped if the plan, the lease or the mode is not what it was."""
        if not CLAIMS.renew(self._plan, now=self._clock()):
            raise Stopped(reasons.of("pair_worker_replaced", plan=str(self._plan.pk)))
        mode, _ = fleet.mode_now(self._plan.cluster)
        if mode in fleet.MODES_WITHOUT_WRITES:
            cluster = self._plan.cluster.name
            raise Stopped(reasons.of("pair_mode", cluster=cluster, mode=reasons.of(f"mode_{mode}")))

    def _delete_ended(self, ended: Collection[PairTest], running: Sequence[PairTest], pods: Pods) -> None:
        """Deletes the Jobs of tests that ended now, and those that a worker that died left behind."""
        expected = {test.place for test in (*ended, *running)}
        orphans = [
            place
            for place, of in sorted(pods.items())
            if place not in expected and any(not pod.deleting for pod in of.values())
        ]
        self._jobs.delete((*names(self._plan, *ended), *names_of(self._plan, orphans)))

    def _begin_due(self, pending: Sequence[PairTest], running: list[PairTest], pods: Pods) -> None:
        """Begins tests of the earliest round whose nodes are free."""
        now = self._clock()
        first = min(test.round for test in (*pending, *running))
        busy = {node.pk for test in running for node in test.nodes}
        due = [test for test in pending if test.round == first and (test.again_at is None or test.again_at <= now)]
        nodes = {node.pk: node for test in due for node in test.nodes}
        known = testable.obstacles(self._plan.cluster, nodes.values(), named=self._plan.subjects, now=now)
        on_nodes = {pod.node for of in pods.values() for pod in of.values() if not pod.terminal}
        given_up = self._given_up()
        for test in due:
            both = test.nodes
            if len(running) >= MAX_RUNNING_TESTS:
                break
            if not busy.isdisjoint(node.pk for node in both) or not on_nodes.isdisjoint(node.name for node in both):
                continue
            obstacle = next((known[node.pk] for node in both if node.pk in known), None) or self._other_work(both)
            if obstacle is not None:
                self._wait(test, obstacle, given_up)
                continue
            begun = PairTest.objects.filter(pk=test.pk, state=TestState.PENDING, plan__state=State.RUNNING)
            if begun.update(state=TestState.RUNNING, begun_at=now, waits_since=None):
                running.append(test)
                busy |= {node.pk for node in both}
                self._create(test)

    def _other_work(self, nodes: Sequence[Node]) -> reasons.Reason | None:
        if self._plan.busy_nodes:
            return None  # the kubelet refuses the pod if too few GPUs are left
        for node in nodes:
            if pod := self._jobs.other_work(node):
                return reasons.of("pair_node_busy", node=node.name, pod=pod)
        return None

    def _given_up(self) -> set[str]:
        """The nodes for which the plan has waited in vain: it does not wait for them in each round."""
        rows = self._plan.tests.filter(state=TestState.ERROR, because__code__in=GIVEN_UP)
        return {because["params"]["node"] for because in rows.values_list("because", flat=True)}

    def _wait(self, test: PairTest, obstacle: reasons.Reason, given_up: set[str]) -> None:
        """Lets the test wait for its nodes, at most WAIT_LIMIT; then it is not run.

        A validation does not wait for a partner: it takes another one.
        """
        now = self._clock()
        since = test.waits_since or now
        node = dict(obstacle.params)["node"]
        partner = self._plan.rule == PairPlan.Rule.VALIDATION and node not in self._plan.subjects
        if partner or now - since >= WAIT_LIMIT or node in given_up:
            self._store(test, Ended(because=obstacle), state=TestState.PENDING)
        else:
            PairTest.objects.filter(pk=test.pk, state=TestState.PENDING).update(
                waits_since=since, again_at=now + WAIT_POLL, because=obstacle.to_json()
            )

    def _create(self, test: PairTest) -> None:
        """Raises Stopped, and port.KubeError if a later call may succeed; what the cluster refuses ends the test."""
        try:
            useless = self._jobs.create(test)
        except (port.RefusedByServer, port.NotFound) as error:
            useless = Ended(because=reasons.of("pair_call_failed", error=str(error)[:400]))
        if useless is not None:
            self._store(test, useless)

    def _store(self, test: PairTest, ended: Ended, *, state: PairTest.State = TestState.RUNNING) -> bool:
        measured, became = ended.measured, TestState.ERROR
        if measured is not None and ended.because is None:
            limit = nccl_plans.limit_of(test, device=measured.device)
            became = TestState.FAILED if limit is not None and measured.best < limit else TestState.PASSED
        changes = {
            "state": became,
            "busbw": {str(size): figure for size, figure in measured.by_size.items()} if measured else {},
            "best": measured.best if measured else None,
            "device": measured.device if measured else "",
            "because": ended.because.to_json() if ended.because else {},
            "finished_at": self._clock(),
        }
        stored = PairTest.objects.filter(pk=test.pk, state=state).update(**changes)
        doorbell.publish("preflight", self._plan.pk, cluster=self._plan.cluster.name)
        return bool(stored)

    def _tests(self, state: PairTest.State) -> list[PairTest]:
        return list(self._plan.tests.filter(state=state).select_related("plan", "first", "second"))
