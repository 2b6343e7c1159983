"""The test bed: a small cluster with its kubelets and agents, a clock, people, and workers that can die at any time."""

import contextlib
import random
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Min

from kcover import marks, wire
from kcover.fault import Command, CommandResult, Fault
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.services import bounds
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.models import Decision, Rescue, Step
from tests.invariants.watched import Violation, Watched, excluded, must
from tests.portal.rescue.world import World

__all__ = ["CODES", "Bed", "Killed", "Violation"]

NODES = 4
# What each code stands for: see POLICIES. 13 is a program's doing, 999 no rule means.
CODES = (48, 62, 64, 79, 95, 74, 63, 46, 92, 13, 999)
POLICIES = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: bed}
spec:
  rules:
    - priority: 90
      errorCode: ["48", "62", "64"]
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
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: 1min}}
        - {name: reboot, attribute: {unCordon: "true"}}
    - priority: 40
      errorCode: ["46"]
      onDrainTimeout: proceed
      verify: {agent: false}
      actions: [{name: cordon}, {name: drain, attribute: {waittime: 1min}}, {name: reboot}]
    - {priority: 30, errorCode: ["92"], actions: [{name: cordon}, {name: drain}], escalate: "swap the board"}
"""
# The limits that a person sets who has seen to the cause.
CALM = {
    "storm": {"enabled": False},
    "rate": {"enabled": False},
    "breaker": {"enabled": False},
    "budget": {"limit": None},
    "floor": {"percent": None},
}


class Killed(BaseException):
    """``kill -9`` of a worker: nothing of it runs any more, not even error handling."""


class Bed(World):
    """What may happen is a method; each ends with everything looked at that must hold."""

    kube: Watched
    _listed: Sequence[str] | None = None  # the versions of the nodes that the watch has told of

    def __init__(self) -> None:
        super().__init__(policy=POLICIES, nodes=0, fake=Watched)
        self.names = [f"gpu-{number}" for number in range(1, NODES + 1)]
        for name in self.names:
            self.make_node(name)
        self.sync()
        self.sent: list[wire.Report] = []  # reports with items, to be sent again
        self.results: dict[str, list[CommandResult]] = {}
        self.done: set[str] = set()  # commands that agents executed
        self.boots: dict[str, list[str]] = {name: [self.boot(name)] for name in self.names}
        self.pods = 0
        self._boundaries: int | None = None
        self._meanwhile: tuple[int, Callable[[], None]] | None = None
        self._chain = (0, "")
        self._unanswered: dict[tuple[int | None, str, str], int] = {}
        self._forgiven: set[tuple[int | None, str, str]] = set()
        self._asks: dict[tuple[int, str], set[str]] = {}
        self.kube.moment = self._moment

    # The cluster's side

    def make_node(self, name: str) -> None:
        """A node with what never moves: a DaemonSet's pod, a mirror pod, one that has ended."""
        self.kube.add_node(name, gpus=8, labels={"team": "a"}, annotations={"team/note": "ours"})
        self.kube.accounts.pop(name, None)
        for kind, more in (
            ("ds", {"owner_kind": "DaemonSet"}),
            ("mirror", {"mirror": True}),
            ("end", {"phase": "Succeeded"}),
        ):
            if self.kube.objects.find("Pod", "kube-system", f"{kind}-{name}") is None:
                self.kube.add_pod("kube-system", f"{kind}-{name}", node=name, **more)

    def there(self, name: str) -> bool:
        """Whether the cluster has the node now."""
        return self.kube.objects.find("Node", "", name) is not None

    def live(self, name: str) -> dict[str, Any]:
        """The node as the cluster has it."""
        return self.kube.objects.get("Node", "", name)

    def boot(self, name: str) -> str:
        """The boot id."""
        return str(self.live(name)["status"]["nodeInfo"]["bootID"])

    def restart(self, name: str) -> None:
        """The machine boots, whoever asked."""
        self.kube.reboot(name, boot_id=str(uuid.UUID(int=len(self.boots[name]) * 1000 + self.names.index(name))))
        self.boots[name].append(self.boot(name))

    def add_pod(self, name: str) -> None:
        """The scheduler puts a pod on a node that takes work."""
        if self.there(name) and not self.live(name)["spec"].get("unschedulable"):
            self.pods += 1
            self.kube.add_pod("default", f"train-{self.pods}", node=name, labels={"app": "train"})

    def kubelets(self) -> None:
        """Pods that were told to go are gone; reboot jobs run: each compares boot ids first, as its script does."""
        self.kube.finish_deletions()
        for job in self.kube.objects.list("Job"):
            if job.get("status"):
                continue
            pod, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
            node = pod["nodeName"]
            [env] = [one["value"] for one in pod["containers"][0]["env"] if one["name"] == "KCOVER_BOOT_ID"]
            if self.there(node) and self.boot(node) == env:
                self.restart(node)
            self.kube.finish_job(job["metadata"]["namespace"], name)

    def agent(self, name: str, *faults: Fault, boot_id: str = "", skew: float = 0) -> None:
        """The node's agent reports, and does what it is asked to."""
        if self.there(name):
            self._exchange([self._report(name, *faults, boot_id=boot_id, skew=skew)])

    def agents(self) -> None:
        """Every agent reports, all in the same moment."""
        self._exchange([self._report(name) for name in self.names if self.there(name)])

    def _report(self, name: str, *faults: Fault, boot_id: str = "", skew: float = 0) -> wire.Report:
        report = wire.Report(
            node=name,
            boot_id=boot_id or self.boot(name),
            batch_id=str(uuid.UUID(int=len(self.sent) + 1)),
            agent="1.0.0",
            sent_at=self.now + timedelta(seconds=skew),
            faults=faults,
            command_results=tuple(self.results.pop(name, ())),
        )
        if faults:
            self.sent.append(report)
        return report

    def _exchange(self, reports: Sequence[wire.Report]) -> None:
        """Agents report and do what they are asked to: each command once, none of another boot."""
        for report, answer in zip(reports, self.deliver(*reports), strict=True):
            for command in answer.commands:
                if command.id not in self.done:
                    self.done.add(command.id)
                    self._obey(report.node, command)

    def _obey(self, name: str, command: Command) -> None:
        mine = command.args["boot_id"] == self.boot(name)
        if mine:
            self.restart(name)
        result = CommandResult(id=command.id, status="done" if mine else "refused", finished_at=self.now)
        self.results.setdefault(name, []).append(result)

    def deliver(self, *reports: wire.Report) -> list[wire.Answer]:
        """The agents' door."""
        deliveries = [
            incidents.Delivery(cluster=self.cluster, node=report.node, decoded=wire.Decoded(report=report))
            for report in reports
        ]
        return incidents.ingest(deliveries, now=self.now)

    # The portal's side

    def sync(self) -> None:
        """What the watch does: a list that says nothing new would change nothing."""
        listed = [node["metadata"]["resourceVersion"] for node in self.kube.objects.list("Node")]
        if listed != self._listed:
            super().sync()
            self._listed = listed

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
        finally:
            self._boundaries = self._meanwhile = None
        self.read_ledger()
        if died:
            self._forgiven |= {key for key, count in self._unanswered.items() if count}
        open_ = {key for key, count in self._unanswered.items() if count} - self._forgiven
        must(not open_, 46, f"writes without an answer in the ledger: {open_}")

    def sweep(self) -> None:
        """The sweep, and the task that it wakes."""
        services.sweep(now=self.now)
        services.reconcile(now=self.now)

    def work_once(self, random_: random.Random) -> None:
        """The sweep's list, in any order, judged and run in one go or in two."""
        due = incident_queries.to_judge(now=self.now)
        random_.shuffle(due)
        for pk in due:
            if random_.random() < 0.5:
                services.judge_and_run(pk, clock=self.clock)
            else:
                services.judge(pk, now=self.now)
        for pk in queries.to_withdraw(now=self.now):
            services.withdraw(pk, clock=self.clock)
        rescues = queries.due(now=self.now)
        random_.shuffle(rescues)
        for pk in rescues:
            services.run(pk, clock=self.clock)

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
        twice = _ask(
            "SELECT node_id FROM rescue_rescue WHERE state IN ('held', 'waiting', 'running') "
            "GROUP BY node_id HAVING count(*) > 1"
        )
        must(not twice, 8, "two open rescues on one node")
        self._check_jobs()
        self.read_ledger()

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

    def read_ledger(self) -> None:
        """Follows the chain from where it was left; what it tells of asks for a reboot is held against the rules."""
        sequence, digest = self._chain
        if _ask("SELECT sequence, digest FROM ledger_chain WHERE cluster = 'c1'") == [self._chain]:
            return
        for entry in Entry.objects.filter(cluster="c1", sequence__gt=sequence).order_by("sequence"):
            must(entry.sequence == sequence + 1 and entry.previous == digest, 46, "the chain is broken")
            must(ledger.digest(entry) == entry.digest, 46, "an entry does not match its digest")
            sequence, digest = entry.sequence, entry.digest
            self._read(entry)
        self._chain = (sequence, digest)

    def _read(self, entry: Entry) -> None:
        verb, _, end = entry.verb.rpartition(".")
        key = (entry.rescue, verb, entry.subject)
        if end == "begun":
            self._unanswered[key] = self._unanswered.get(key, 0) + 1
            if verb == "reboot":
                self._read_ask(entry)
        elif self._unanswered.get(key) and end in ("done", "failed"):
            self._unanswered[key] -= 1
        if entry.verb in ("decision.rescue", "decision.approve"):
            self._read_decision(Decision.objects.get(pk=entry.data["decision"]))

    def _read_ask(self, entry: Entry) -> None:
        """Invariants 13, 16, 21: one ask a boot and a person's word; none of a node that was not drained."""
        assert entry.rescue is not None
        wanted = entry.data["wanted"]
        asks = self._asks.setdefault((entry.rescue, wanted["boot_id"]), set())
        asks.add(wanted["key"])
        words = Entry.objects.filter(rescue=entry.rescue, verb__in=("step.retry", "step.skip")).count()
        must(len(asks) <= 1 + words, 16, f"boot {wanted['boot_id'][:8]} of {entry.node} was asked to end as {asks}")
        for drain in Rescue.objects.get(pk=entry.rescue).steps.filter(name="drain"):
            ended = drain.state in ("done", "skipped") or drain.index > _index_of(wanted["key"])
            must(ended, 21, f"{entry.node} is to be rebooted while its drain is {drain.state}")

    def _read_decision(self, row: Decision) -> None:
        must(row.mode not in ("paused", "shadow"), 48, f"decision {row.pk} says {row.answer} in mode {row.mode}")
        settings = row.facts["counts"]
        must(settings is None or settings["eligible"] > 0, 30, f"decision {row.pk} was made over no eligible node")

    # The end

    def settle(self, random_: random.Random) -> None:
        """People and machines behave, and time passes, until nothing is due any more."""
        self.kube.heal_api()
        for name in self.names:
            if not self.there(name):
                self.make_node(name)
            self.kube.label_node(name, {"kcover.io/exclude": None})
            self.kube.set_ready(name, True)
        for budget in self.kube.objects.list("PodDisruptionBudget"):
            self.kube.objects.remove("PodDisruptionBudget", budget["metadata"]["namespace"], budget["metadata"]["name"])
        for cluster in (None, self.cluster):
            fleet.resume(cluster=cluster, reason="", actor="user:ann", now=self.now, mode="enforce")
        bounds.set_guards(self.cluster, CALM, actor="user:ann", reason="", now=self.now)
        for storm in Incident.objects.filter(node=None, state="open"):
            incidents.close_by_hand(storm, actor="user:ann", reason="seen to", now=self.now)
        for _ in range(400):
            self.kubelets()
            self.agents()
            self.sync()
            self.sweep()
            self.worker(random_)
            self.check()
            unrest = Rescue.objects.filter(state__in=("waiting", "running")).exists() or queries.at_odds()
            if not unrest and not Step.objects.exclude(withdraw_at=None).exists():
                break
            self.now = self._next()
        self._check_end()

    def _next(self) -> datetime:
        """When something is due next; a lease counts too."""
        rows = Rescue.objects.filter(state__in=("waiting", "running"))
        found = rows.aggregate(due=Min("due_at"), lease=Min("lease_until"))
        found["withdraw"] = Step.objects.aggregate(at=Min("withdraw_at"))["at"]
        later = [moment for moment in found.values() if moment is not None and moment > self.now]
        return max(min(later, default=self.now), self.now + timedelta(seconds=1))

    def _check_end(self) -> None:
        left = Rescue.objects.filter(state__in=("waiting", "running"))
        must(not left.exists(), 14, f"never ends: {[(one.pk, one.state, one.because) for one in left]}")
        must(not Step.objects.exclude(withdraw_at=None).exists(), 14, "something is withdrawn for ever")
        for rescue in Rescue.objects.filter(outcome="healed"):
            must(not rescue.marks, 19, f"{rescue} healed the node and has marks {rescue.marks}")
        for name in self.names:
            self._check_node(name)
        must(ledger.verify("c1").intact, 46, "the ledger does not verify")
        for rescue in Rescue.objects.all():
            told = ledger.replay("c1", rescue=rescue.pk)
            row = (rescue.state, rescue.outcome, rescue.needs_human)
            must((told.state, told.outcome, told.needs_human) == row, 46, f"{rescue} is {row}, the ledger says {told}")

    def _check_node(self, name: str) -> None:
        """What is on the node is what the portal knows of, and is held by somebody."""
        node, row = self.live(name), self.node(name)
        if queries.open_on(row) is not None:
            return  # it is held: whoever has the next word finds out
        known = queries.marked_on(row)
        mark = node["metadata"]["annotations"].get(marks.ANNOTATION, "")
        must(bool(mark) == (known is not None), 19, f"{name} carries mark {mark!r}, the portal knows of {known}")
        if not mark:
            must(not self.kube.account(name).taints, 19, f"{name} keeps {self.kube.account(name).taints}")
            return
        shown = marks.read(marks.parse(mark))
        assert shown is not None
        cordoned = bool(node["spec"].get("unschedulable"))
        must(cordoned or not (shown.cordon or shown.foreign_cordon), 20, f"{name} is uncordoned and carries a mark")


def _ask(query: str) -> list[tuple[Any, ...]]:
    """What a question finds; as SQL where it is asked after every step: the ORM would take much of the walk's time."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def _index_of(key: str) -> int:
    """The place of the step that asked under a key, ``reboot-<rescue>-<index>-<retry>``."""
    return int(key.split("-")[2])
