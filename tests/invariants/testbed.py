"""The test bed: a small cluster (``walk_cluster``), a clock, and workers that can die at any time."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

from django.db import connection, transaction

from kcover_portal.checks import queries as checks, services as check_runs
from kcover_portal.checks.services import validations
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.models import Step
from kcover_portal.rescue.queries import probations
from tests.invariants import audit_log, handed_away, monitors, sql, told_faults
from tests.invariants.observed_cluster import Violation, excluded, must
from tests.invariants.walk_cluster import WalkCluster

__all__ = ["CODES", "Bed", "Killed", "Violation"]

# What each code stands for: see POLICIES. 13 is a program's doing, 999 no rule means.
CODES = (48, 62, 64, 79, 95, 74, 63, 46, 92, 119, 140, 143, 13, 999)
HANDED_AWAY = (109, 120, 123, 123, 124)  # what others repair, and GPUs that are isolated by themselves
POLICIES = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: bed}
spec:
  rules:
    - priority: 90
      errorCode: ["48", "62", "64"]
      probation: 1h
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: 10min}}
        - {name: reboot, attribute: {unCordon: "true"}}
    - {priority: 80, errorCode: ["79"], actions: [{name: cordon}]}
    - priority: 70
      errorCode: ["95"]
      approval: {required: true, approvers: 2, expires: 1h}
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
    - {priority: 60, errorCode: ["74"], actions: [{name: taint, attribute: {key: team/gpu, value: "<code>"}}]}
    - priority: 50
      errorCode: ["63"]
      onDrainTimeout: force
      probation: 10min
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: 1min}}
        - {name: reboot, attribute: {unCordon: "true"}}
    - priority: 40
      errorCode: ["46"]
      onDrainTimeout: proceed
      verify: {agent: false}
      actions: [{name: cordon}, {name: drain, attribute: {waittime: 1min}}, {name: reboot}]
    - priority: 35
      errorCode: ["119"]
      validate: light
      probation: 1h
      actions: [{name: cordon}, {name: drain, attribute: {waittime: 1min}}, {name: unCordon}]
    - priority: 32
      errorCode: ["140"]
      actions: [{name: drain, attribute: {waittime: 1min}}, {name: replace}]
    - priority: 31
      errorCode: ["143"]
      onDrainTimeout: proceed
      actions: [{name: drain, attribute: {waittime: 1min}}, {name: reboot}, {name: replace}]
    - {priority: 30, errorCode: ["92"], actions: [{name: cordon}, {name: drain}], escalate: "swap the board"}
    - priority: 29
      errorCode: ["109"]
      actions:
        - {name: drain, attribute: {waittime: 1min}}
        - {name: offline, attribute: {url: "<other system>", waittime: 1h, unCordon: "true"}}
    - priority: 28
      errorCode: ["120"]
      actions:
        - {name: drain, attribute: {waittime: 1min}}
        - {name: repair, attribute: {vendor: ACME, queue: gpu, unCordon: "true"}}
    - {priority: 27, errorCode: ["123"], actions: [{name: quarantineDevice}]}
    - priority: 26
      errorCode: ["124"]
      actions: [{name: quarantineDevice, attribute: {effect: NoExecute, otherwise: hold}}]
    - priority: 25
      match: {kinds: [alert, condition, health], applicationFaults: false}
      actions: [{name: drain, attribute: {waittime: 1min}}, {name: reboot, attribute: {unCordon: "true"}}]
"""


class Killed(BaseException):
    """``kill -9`` of a worker: nothing of it runs any more, not even error handling."""


class Bed(WalkCluster):
    """What may happen is a method; each ends with everything looked at that must hold."""

    def __init__(self) -> None:
        self.away = handed_away.HandedAway()
        super().__init__(policy=POLICIES.replace("<other system>", self.away.url))
        self.cluster.decision_secret = handed_away.SECRET
        self.cluster.save()
        self._uninstall, self.uninstall = self.uninstall, self._end
        self._boundaries: int | None = None
        self._meanwhile: tuple[int, Callable[[], None]] | None = None
        self.told = told_faults.ToldFaults()
        self._ledger = audit_log.AuditLogCheck(self.told)
        self.monitors = monitors.Monitors(self)
        self.kube.moment = self._moment

    def _end(self) -> None:
        self._uninstall()
        self.away.stop()

    # The portal's side

    def worker(
        self, random_: random.Random, *, dies_at: int | None = None, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """A worker looks at everything that is due. It may die at a write to the database or at a call to the cluster,
        before or after; or something else happens in the middle of its calls."""
        self.kube.hands_off = {name for name in self.names if self.there(name) and excluded(self.live(name))}
        self._boundaries = dies_at
        self._meanwhile = (random_.randint(1, 8), meanwhile) if meanwhile else None
        died = False
        try:
            with connection.execute_wrapper(self._sql) if dies_at else contextlib.nullcontext():
                self.work_once(random_)
        except Killed:
            died = True
            if connection.in_atomic_block:
                transaction.set_rollback(False)  # a single statement that was not made is all that is missing
        finally:
            self._boundaries = self._meanwhile = None
        self._ledger.check_answers(died=died)

    def sweep(self) -> None:
        """The sweep, and the task that it wakes."""
        services.sweep(now=self.now)
        services.reconcile(now=self.now)

    def work_once(self, random_: random.Random) -> None:
        """The sweep's list, in any order, decided alone or together, and run in one go or in two."""
        due = [pk for pk, _ in incident_queries.due_for_decision(now=self.now)]
        random_.shuffle(due)
        while due:
            together = due[: random_.choice((1, 1, 2, len(due)))]
            due = due[len(together) :]
            if len(together) > 1 or random_.random() < 0.5:
                due += services.decide_and_run(together, clock=self.clock)
            else:
                services.decide(together[0], now=self.now)
        for pk, _ in queries.to_withdraw(now=self.now):
            services.withdraw(pk, clock=self.clock)
        self.end_probations()
        rescues = queries.due(now=self.now)
        random_.shuffle(rescues)
        for pk, _ in rescues:
            services.run(pk, clock=self.clock)
        self._run_checks()

    def end_probations(self) -> None:
        """Probations that are over, or that somebody ends early."""
        for pk, _ in probations.due(now=self.now):
            services.carry_out_probation_end(pk, clock=self.clock)

    def _run_checks(self) -> None:
        """What the tasks of the checks do with runs and validations."""
        for run in checks.running():
            check_runs.advance(run, now=self.now)
        for validation in checks.due_validations():
            if validation.run_id is None:
                validations.start(validation.pk, now=self.now)
            else:
                validations.conclude(validation.run_id, now=self.now)

    def _moment(self, when: str, verb: str) -> None:
        self._boundary()
        if self._meanwhile is not None:
            count, act = self._meanwhile
            self._meanwhile = (count - 1, act)
            if count == 1:
                self._meanwhile = None
                act()

    def _sql(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith(("INSERT", "UPDATE", "DELETE")):
            self._boundary()
        return execute(sql, *rest)

    def _boundary(self) -> None:
        if self._boundaries is not None:
            self._boundaries -= 1
            if self._boundaries <= 0:
                self._boundaries = None
                raise Killed

    # What must hold

    def check(self) -> None:
        """After every step."""
        twice = sql.ask(
            "SELECT node_id FROM rescue_rescue WHERE state IN ('held', 'waiting', 'running') "
            "GROUP BY node_id HAVING count(*) > 1"
        )
        must(not twice, 8, "two open rescues on one node")
        self._check_jobs()
        self.away.check()
        self._ledger.follow()
        self.monitors.check()

    def _check_jobs(self) -> None:
        """A reboot that nobody wants any more is called back: its job is gone, or somebody is to delete it."""
        for job in self.kube.objects.list("Job"):
            if job.get("status"):
                continue
            _, _, rescue, index, _ = job["metadata"]["name"].split("-")
            step = Step.objects.select_related("rescue").get(rescue=rescue, index=index)
            wanted = step.state != "skipped" and step.rescue.state in ("held", "waiting", "running")
            due = step.withdraw_at is not None
            must(wanted or due or step.state == "done", 20, f"{step.rescue} left {job['metadata']}")
