"""Each source heals a node, end to end: a simulated machine breaks, one system tells of it, and the node reboots."""

import functools
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kcover.faults.fault import Fault
from kcover_portal.fleet.services import node_rows
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.models import Occurrence
from kcover_portal.kube import connections, port
from kcover_portal.rescue import services as rescues
from kcover_portal.rescue.models import Rescue
from kcover_portal.sources import services
from simulator.kubeapi import store
from simulator.world import agenda, injector, machine, world
from tests.codes import codes_of
from tests.contract import over_http
from tests.portal.jobs.sim_world import PACE
from tests.portal.rescue.world import World
from tests.portal.sources.conftest import add, notification, pull, stamp
from tests.portal.sources.stand_ins import StandIns
from tests.simulator import api_server

pytestmark = pytest.mark.django_db
PULLED = ("loki", "gpud", "prometheus", "pod-logs")
WATCHED = ("conditions", "events")
KINDS = (*PULLED, "alertmanager", "cloudevents", *WATCHED)
LINE = "CUDA error: invalid device ordinal"
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: heal}
spec:
  rules:
    - priority: 10
      errorCode: ["48"]
      match:
        codes: {other: [invalid_device_ordinal]}
        kinds: [alert, condition, gpud, health]
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
      verify: {agent: false}
"""
ALERT = {
    "status": "firing",
    "labels": {"alertname": "GpuEccErrors", "severity": "critical"},
    "endsAt": "0001-01-01T00:00:00Z",
}
EVENT = {
    "specversion": "1.0",
    "type": "com.nvidia.nvsentinel.health.v1",
    "source": "nvsentinel://east/healthevents",
    "id": "1",
    "data": {"checkName": "GpuMemWatch", "isFatal": True, "isHealthy": False, "errorCode": ["DCGM_FR_VOLATILE_DBE"]},
}
# All nodes break at once, which chance would not do.
ALL_AT_ONCE = {name: {"enabled": False} for name in ("storm", "rate", "breaker")}


class HealWorld(World):
    """The simulator over HTTP. Each kind of source has a node of its own, in the order of KINDS."""

    def __init__(self, rig: over_http.SimulatorRig, built: world.World, clock: agenda.ManualClock) -> None:
        self.rig, self.built, self.simulated_clock = rig, built, clock
        self.nodes = dict(zip(KINDS, (name for name, spec in built.specs.items() if not spec.standby), strict=False))
        super().__init__(policy=POLICY, nodes=0)
        self.now = clock()
        self.uninstall()
        self.uninstall = connections.install(self.cluster.pk, rig.cluster)
        self.cluster.guards = ALL_AT_ONCE
        self.cluster.save()

    def sync(self) -> None:
        changes = node_rows.sync_list(self.cluster, self.rig.cluster.list_nodes().items, now=self.now)
        rescues.nudge_changed(changes, now=self.now)

    def pass_time(self, seconds: float = 1) -> None:
        self.rig.inside(lambda: self.simulated_clock.advance(seconds, self.built.agenda))
        self.now = self.simulated_clock()
        self.sync()
        self.work()

    def break_machine(self, node: str) -> None:
        """Xid 48 on the first GPU."""
        self.rig.inside(lambda: injector.inject(self.built, injector.Order(node=node, kind="xid", code=48)))


@pytest.fixture
def heals() -> Iterator[HealWorld]:
    clock = agenda.ManualClock(datetime(2026, 11, 21, 8, tzinfo=UTC))
    objects, plans = store.Store(now=clock), agenda.Agenda(now=clock)
    size = world.Size(nodes=len(KINDS) + 4, cpu_nodes=0, workloads=False)
    built = world.build(objects, plans, size=size, pace=replace(PACE, run=1.0), rng=random.Random(5))
    with over_http.simulator(objects) as rig:
        made = HealWorld(rig, built, clock)
        yield made
        made.uninstall()


class Sources:
    """A source of each kind, each with a node of its own."""

    def __init__(self, heals: HealWorld, others: StandIns) -> None:
        self.heals, self.others = heals, others
        services.make_watched_sources(heals.now)
        urls = {"loki": others.url, "gpud": f"{others.url}/gpud/{{node}}", "prometheus": f"{others.url}/prometheus"}
        kinds = [kind for kind in KINDS if kind not in WATCHED]
        self.rows = {kind: add(heals.cluster, kind, now=heals.now, url=urls.get(kind, "")) for kind in kinds}
        for kind, witness in (("loki", others.logs), ("prometheus", others.prometheus)):
            hear = functools.partial(witness.add_kernel_line, heals.nodes[kind])
            heals.built.machines[heals.nodes[kind]].collectors.append(hear)
        self.pull()

    def break_machines(self) -> None:
        for node in self.heals.nodes.values():
            self.heals.break_machine(node)
        self.others.active[self.heals.nodes["gpud"]] = [(48, machine.pci(0))]
        print_in_pod(self.heals, self.heals.nodes["pod-logs"])

    def pull(self) -> None:
        for kind in PULLED:
            pull(self.rows[kind], at=self.heals.now)

    def send(self, broken: datetime, *, event: str = "1") -> None:
        """What others send and the watch shows, of what broke then."""
        heals, nodes = self.heals, self.heals.nodes
        labels = {**ALERT["labels"], "node": nodes["alertmanager"]}
        alerts = notification({**ALERT, "labels": labels, "startsAt": stamp(broken), "fingerprint": event})
        receive = functools.partial(services.receive, headers={}, now=heals.now)
        receive(self.rows["alertmanager"], alerts, content_type="application/json")
        data = {**EVENT["data"], "nodeName": nodes["cloudevents"]}
        health = {**EVENT, "id": event, "time": stamp(broken), "data": data}
        receive(self.rows["cloudevents"], health, content_type="application/cloudevents+json")
        show_condition(heals, nodes["conditions"], at=broken)
        show_event(heals, nodes["events"], at=broken)


@pytest.fixture
def sources(heals: HealWorld, settings: Any) -> Iterator[Sources]:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    with StandIns(heals.nodes.values(), pci=machine.pci(0)) as others:
        yield Sources(heals, others)


def test_each_source_heals_a_node(heals: HealWorld, sources: Sources) -> None:
    nodes = heals.nodes
    sources.break_machines()
    heals.pass_time()
    sources.pull()
    sources.send(heals.now)
    for _ in range(60):
        heals.pass_time(3)
        if Rescue.objects.filter(state="succeeded").count() == len(KINDS):
            break
    healed = {rescue.node.name: rescue for rescue in Rescue.objects.select_related("node")}
    assert {kind: healed[node].outcome for kind, node in nodes.items() if node in healed} == dict.fromkeys(
        KINDS, "healed"
    )
    for kind, node in nodes.items():
        [incident] = healed[node].incidents.all()
        assert [one.source for one in incidents.witnesses([incident.pk])[incident.pk]] == [name_of(kind)]
        assert len(heals.built.machines[node].boots) == 2
        assert not heals.rig.cluster.get_node(node).unschedulable


def name_of(kind: str) -> str:
    return f"c1-{kind}" if kind in WATCHED else kind


def test_inv_55_no_source_that_is_late_causes_a_second_reboot(heals: HealWorld, sources: Sources) -> None:
    """Agents tell at once, and each source during the verification, again at its end, and once more after it."""
    broken = heals.now
    sources.break_machines()
    seen = Fault(kind="xid", code=48, pci=machine.pci(0), source="kmsg", seen_at=broken)
    for node in heals.nodes.values():
        heals.report(seen, node=node, boot_id=heals.rig.cluster.get_node(node).boot_id)
    until(heals, steps__name="verify", steps__state="waiting")
    for event in ("1", "2"):
        sources.pull()
        sources.send(broken, event=event)
        heals.pass_time(3)
    assert {code for rescue in Rescue.objects.all() for code in codes_of(rescue.steps.get(name="verify").because)} == {
        "hold_down",
        "late_reports",
    }
    end_condition(heals, heals.nodes["conditions"])  # as long as it stands, the rescue waits
    until(heals, state="succeeded")
    sources.pull()
    sources.send(broken, event="3")
    for _ in range(30):
        heals.pass_time(3)
    rescues = {rescue.node.name: rescue for rescue in Rescue.objects.select_related("node")}
    assert {rescue.outcome for rescue in rescues.values()} == {"healed"}
    assert Rescue.objects.count() == len(KINDS)
    for kind, node in heals.nodes.items():
        told = Occurrence.objects.filter(node__name=node, witness=name_of(kind))
        assert {one.boot_id for one in told} == {heals.built.machines[node].boots[0].boot_id}, kind
        assert all(one.late_seconds is not None for one in told)
        assert len(heals.built.machines[node].boots) == 2
        assert not heals.rig.cluster.get_node(node).unschedulable


def until(heals: HealWorld, **state: str) -> None:
    for _ in range(60):
        heals.pass_time(2)
        if Rescue.objects.filter(**state).distinct().count() == len(KINDS):
            return
    raise AssertionError(f"never {state}: {[(one.state, str(one.why)) for one in Rescue.objects.all()]}")


def print_in_pod(heals: HealWorld, node: str) -> None:
    """A program on the node fails with a line in its log."""
    pod = api_server.pod("train", on=node, phase="Failed")

    def run() -> None:
        heals.rig.api.logs.write(heals.built.objects.create("Pod", pod), LINE)

    heals.rig.inside(run)


def show_condition(heals: HealWorld, node: str, *, at: datetime) -> None:
    """node-problem-detector writes a condition, and the watch shows the nodes."""
    status = heals.rig.read("Node", node)["status"]
    stuck = {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung", "lastTransitionTime": stamp(at)}
    heals.rig.merge("Node", node, {"status": {"conditions": [*status["conditions"], stuck]}}, status=True)
    services.ConditionFeed(heals.cluster).feed(heals.rig.cluster.list_nodes().items, now=heals.now)


def end_condition(heals: HealWorld, node: str) -> None:
    """node-problem-detector has started in the new boot, and sees nothing."""
    stated = [one for one in heals.rig.read("Node", node)["status"]["conditions"] if one["type"] != "KernelDeadlock"]
    over = {"type": "KernelDeadlock", "status": "False", "reason": "NoDeadlock", "lastTransitionTime": stamp(heals.now)}
    heals.rig.merge("Node", node, {"status": {"conditions": [*stated, over]}}, status=True)
    services.ConditionFeed(heals.cluster).feed(heals.rig.cluster.list_nodes().items, now=heals.now)


def show_event(heals: HealWorld, node: str, *, at: datetime) -> None:
    """KCE's monitor writes an Event, and the watch shows it."""
    draft = port.EventDraft(
        name="xid",
        namespace="kce-rescue-system",
        reason="XidError",
        message="GPU Xid error, pci:0000:03:00, xid:48, log: Channel 00000001",
        type="Warning",
        involved_kind="Node",
        involved_name=node,
        involved_uid="",
        at=at,
        component="monitor",
    )
    heals.rig.unrestricted().emit(draft)
    feed = services.EventFeed(heals.cluster, lambda *_: None)
    feed.feed(heals.rig.cluster.list_events().items, now=heals.now)
