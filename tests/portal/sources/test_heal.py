"""Each source heals a node, end to end: a simulated machine breaks, one system tells of it, and the node reboots."""

import functools
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kcover_portal.fleet.services import node_rows
from kcover_portal.incidents import queries as incidents
from kcover_portal.kube import connections, port
from kcover_portal.rescue import services as rescues
from kcover_portal.rescue.models import Rescue
from kcover_portal.sources import services
from simulator.kubeapi import store
from simulator.world import agenda, injector, machine, world
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


def test_each_source_heals_a_node(heals: HealWorld, settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    cluster, now, nodes = heals.cluster, heals.now, heals.nodes
    services.make_watched_sources(now)
    with StandIns(nodes.values(), pci=machine.pci(0)) as others:
        urls = {"loki": others.url, "gpud": f"{others.url}/gpud/{{node}}", "prometheus": f"{others.url}/prometheus"}
        rows = {kind: add(cluster, kind, now=now, url=urls.get(kind, "")) for kind in KINDS if kind not in WATCHED}
        for kind, witness in (("loki", others.logs), ("prometheus", others.prometheus)):
            hear = functools.partial(witness.add_kernel_line, nodes[kind])
            heals.built.machines[nodes[kind]].collectors.append(hear)
        for kind in PULLED:
            pull(rows[kind], at=now)
        for node in nodes.values():
            heals.break_machine(node)
        others.active[nodes["gpud"]] = [(48, machine.pci(0))]
        print_in_pod(heals, nodes["pod-logs"])
        heals.pass_time()
        for kind in PULLED:
            pull(rows[kind], at=heals.now)
    alerts = notification(
        {**ALERT, "labels": {**ALERT["labels"], "node": nodes["alertmanager"]}, "startsAt": stamp(now)}
    )
    receive = functools.partial(services.receive, headers={}, now=heals.now)
    receive(rows["alertmanager"], alerts, content_type="application/json")
    event = {**EVENT, "time": stamp(now), "data": {**EVENT["data"], "nodeName": nodes["cloudevents"]}}
    receive(rows["cloudevents"], event, content_type="application/cloudevents+json")
    show_condition(heals, nodes["conditions"])
    show_event(heals, nodes["events"])

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
        name = f"c1-{kind}" if kind in WATCHED else kind
        assert [one.source for one in incidents.witnesses([incident.pk])[incident.pk]] == [name]
        assert len(heals.built.machines[node].boots) == 2
        assert not heals.rig.cluster.get_node(node).unschedulable


def print_in_pod(heals: HealWorld, node: str) -> None:
    """A program on the node fails with a line in its log."""
    pod = api_server.pod("train", on=node, phase="Failed")

    def run() -> None:
        heals.rig.api.logs.write(heals.built.objects.create("Pod", pod), LINE)

    heals.rig.inside(run)


def show_condition(heals: HealWorld, node: str) -> None:
    """node-problem-detector writes a condition, and the watch shows the nodes."""
    status = heals.rig.read("Node", node)["status"]
    stuck = {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung", "lastTransitionTime": stamp(heals.now)}
    heals.rig.merge("Node", node, {"status": {"conditions": [*status["conditions"], stuck]}}, status=True)
    services.ConditionFeed(heals.cluster).feed(heals.rig.cluster.list_nodes().items, now=heals.now)


def show_event(heals: HealWorld, node: str) -> None:
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
        at=heals.now,
        component="monitor",
    )
    heals.rig.unrestricted().emit(draft)
    feed = services.EventFeed(heals.cluster, lambda *_: None)
    feed.feed(heals.rig.cluster.list_events().items, now=heals.now)
