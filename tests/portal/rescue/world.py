"""A small world for engine tests: a fake cluster, a clock that is moved by hand, and the portal's rows in step."""

import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Barrier

from django.db import connection

from kcover import reasons, wire
from kcover.evidence import bundle
from kcover.faults.fault import Check, CommandResult, Fault
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster, Command, Node
from kcover_portal.fleet.services import node_rows
from kcover_portal.incidents import queries as incident_queries, services as incidents
from kcover_portal.kube import connections
from kcover_portal.lib.prepared import Prepared
from kcover_portal.policies import services as policies
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import probations
from tests import moment
from tests.kube_fake import FakeCluster

HEAL = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata: {name: heal}
spec:
  rules:
    - priority: 10
      errorCode: ["48", "62", "64"]
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: 10min}}
        - {name: reboot, attribute: {unCordon: "true"}}
"""
CORDON = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata: {name: cordon}
spec: {rules: [{priority: 10, errorCode: ["62"], actions: [{name: cordon}]}]}
"""
OFFERED = Prepared[Command](lambda: Command.objects.filter(kind=bundle.COMMAND, state=Command.State.OFFERED).order_by())
NODE = "gpu-1"
PCI = "0000:4e:00"


class World:
    """Everything moves only when the test says so."""

    def __init__(self, *, policy: str = HEAL, nodes: int = 1, fake: type[FakeCluster] = FakeCluster) -> None:
        self.now = moment.START
        self.collects_evidence = False  # False: the agents are older than the command, and refuse it at once
        self.kube = fake(clock=self.clock)
        self.cluster = Cluster.objects.create(
            name="c1", created_at=self.now, kubeconfig="fake", hold_down=10, reboot="job"
        )
        self.uninstall = connections.install(self.cluster.pk, self.kube)
        self.kube.add_namespace("kcover-jobs")
        for index in range(1, nodes + 1):
            self.kube.add_node(f"gpu-{index}", gpus=8)
        self.sync()
        if policy:
            policies.apply(policy, author="test", reason="", now=self.now)

    @property
    def now(self) -> datetime:
        """The time here, and in this process where a test has its clock moved."""
        return self._now

    @now.setter
    def now(self, value: datetime) -> None:
        self._now = value
        moment.move_to(value)

    def clock(self) -> datetime:
        return self.now

    def sync(self) -> None:
        """What the watch does."""
        changes = node_rows.sync_list(self.cluster, self.kube.list_nodes().items, now=self.now)
        services.nudge_changed(changes, now=self.now)

    def node(self, name: str = NODE) -> Node:
        return Node.objects.select_related("cluster").get(cluster=self.cluster, name=name)

    def report(
        self,
        *faults: Fault,
        node: str = NODE,
        boot_id: str = "",
        batch: str = "",
        checks: tuple[Check, ...] = (),
        results: tuple[CommandResult, ...] = (),
        agent: str = "1.0.0",
    ) -> wire.Answer:
        """What an agent's report does."""
        report = wire.Report(
            version=1,
            node=node,
            boot_id=boot_id or self.kube.get_node(node).boot_id,
            batch_id=batch or str(uuid.uuid4()),
            agent=agent,
            sent_at=self.now,
            inventory=None,
            faults=faults,
            checks=checks,
            command_results=results,
        )
        incoming = incidents.IncomingReport.of(self.cluster, report, received_at=self.now)
        return incidents.ingest([incoming], now=self.now)[0]

    def fault(self, code: int = 62, *, node: str = NODE, pci: str = PCI, **more: object) -> wire.Answer:
        return self.report(Fault(kind="xid", code=code, pci=pci, source="kmsg", **more), node=node)

    def work(self) -> None:
        """What workers do once with everything that is due."""
        self.refuse_evidence()
        incidents.settle_doubt(now=self.now)
        for pk, _ in incident_queries.due_for_decision(now=self.now):
            services.decide(pk, now=self.now)
        for pk, _ in queries.due(now=self.now):
            services.run(pk, clock=self.clock)
        for pk, _ in probations.due(now=self.now):
            services.carry_out_probation_end(pk, clock=self.clock)

    def refuse_evidence(self) -> None:
        """What an agent without the command answers."""
        if self.collects_evidence:
            return
        for command in OFFERED.rows():
            refused = CommandResult(
                id=str(command.pk), status="refused", message="unknown command", finished_at=self.now, output={}
            )
            fleet.settle_command(command.node, refused, now=self.now)
            services.nudge(command.node, now=self.now)

    def break_at_once(self, nodes: Iterable[str]) -> None:
        """A fault on each node, and a worker for each rescue, which all begin at the same moment."""
        for node in nodes:
            self.fault(62, node=node)
        found = [services.decide(pk, now=self.now) for pk in self.cluster.incidents.values_list("pk", flat=True)]
        rescues = [rescue.pk for rescue in found if rescue]
        start = Barrier(len(rescues))

        def work(pk: int) -> None:
            start.wait(60)
            try:
                services.run(pk, clock=self.clock)
            finally:
                connection.close()

        with ThreadPoolExecutor(len(rescues)) as pool:
            list(pool.map(work, rescues))

    def pass_time(self, seconds: float = 1) -> None:
        self.now += timedelta(seconds=seconds)
        self.kube.finish_deletions()
        self.sync()
        self.work()

    def rescue(self, node: str = NODE) -> Rescue:
        return Rescue.objects.filter(node__name=node).latest("pk")

    def step(self, name: str, node: str = NODE):
        return self.rescue(node).steps.get(name=name)

    def until(self, state: str, *, step: str = "", seconds: float = 1, rounds: int = 100) -> Rescue:
        """Lets time pass until the rescue (or one of its steps) is in the state."""
        self.work()
        for _ in range(rounds):
            found = Rescue.objects.filter(node__name=NODE).order_by("-pk").first()
            if found and (self.step(step).state if step else found.state) == state:
                return found
            self.pass_time(seconds)
        raise AssertionError(f"never {state}: {[(s.name, s.state, str(s.why)) for s in self.rescue().steps.all()]}")

    def until_reboot_is_asked(self) -> reasons.Reason:
        """Runs until a reboot was requested; returns what names the request."""
        self.work()
        for _ in range(100):
            asked = self.rescue().steps.get(name="reboot").progress.get("request")
            if asked:
                return reasons.from_json(asked)
            self.pass_time()
        raise AssertionError("no reboot was asked for")

    def reboot(self, node: str = NODE) -> None:
        """The machine reboots and its agent reports."""
        self.kube.reboot(node)
        self.pass_time()
        self.pass_time()
        self.report(node=node)
        self.pass_time()
