"""Invariant 33: one symptom on many nodes at once is one storm incident that takes no work, whatever they share."""

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover import wire
from kcover.faults.fault import Fault
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.rescue.models import Decision, Rescue
from tests.portal.rescue.test_silent_agents import CORDON_SILENT, Quiet
from tests.portal.rescue.world import HEAL, PCI, World

pytestmark = pytest.mark.django_db
CODES = {1: 48, 2: 62, 3: 64, 4: 48}  # by node: no code on as many nodes as a storm takes
ALL = [f"gpu-{number}" for number in range(1, 9)]
OFF = {"rate": {"enabled": False}, "breaker": {"enabled": False}}


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy=HEAL, nodes=8)
    cluster_settings.set_guards(made.cluster, OFF, actor="test", reason="", now=made.now)
    yield made
    made.uninstall()


def tell(world: World, name: str, version: str, *codes: int) -> None:
    """The agent of that version reports."""
    report = wire.Report(
        node=name,
        boot_id=world.kube.get_node(name).boot_id,
        batch_id=str(uuid.uuid4()),
        agent=version,
        sent_at=world.now,
        faults=tuple(Fault(kind="xid", code=code, pci=PCI, source="kmsg") for code in codes),
    )
    incoming = incidents.IncomingReport.of(world.cluster, report, received_at=world.now)
    incidents.ingest([incoming], now=world.now)


def isolated(world: World) -> list[str]:
    return sorted(node.name for node in world.kube.list_nodes().items if node.unschedulable)


def four_fail(world: World, versions: dict[str, str]) -> None:
    for name in ALL:
        tell(world, name, versions[name])
    for number, code in CODES.items():
        tell(world, ALL[number - 1], versions[ALL[number - 1]], code)
    world.work()


def assert_storm(world: World, code: str, nodes: list[str], *, cordoned: int) -> None:
    """The one storm, which was opened once, and no more cordons than a quarter of the nodes."""
    [storm] = Incident.objects.filter(kind="storm")
    assert (storm.code, storm.scope, storm.node) == (code, nodes, None)
    assert (len(isolated(world)), Rescue.objects.count()) == (cordoned, cordoned)
    assert world.kube.called("evict") == world.kube.called("ensure_job") == []
    assert Decision.objects.filter(answer="hold").count() == len(nodes) - cordoned


def test_inv_33_a_new_agent_that_sees_faults_everywhere_is_one_storm(world: World) -> None:
    """A rollout: half of the nodes have the new version, and it is they that fail."""
    four_fail(world, {name: "2.0.0" if name in ALL[:4] else "1.0.0" for name in ALL})
    assert_storm(world, "agent_version 2.0.0", ALL[:4], cordoned=2)


def test_inv_33_a_switch_that_its_nodes_share_is_one_storm(world: World) -> None:
    for name in ALL:
        world.kube.label_node(name, {"kcover.io/switch": "leaf-1" if name in ALL[:4] else "leaf-2"})
    world.sync()
    four_fail(world, dict.fromkeys(ALL, "1.0.0"))
    assert_storm(world, "switch leaf-1", ALL[:4], cordoned=2)


def test_inv_33_a_property_of_every_node_is_no_symptom(world: World) -> None:
    """One version everywhere, as on most days, tells no failing node from another."""
    four_fail(world, dict.fromkeys(ALL, "1.0.0"))
    assert isolated(world) == ALL[:4]
    assert not Incident.objects.filter(kind="storm").exists()


@pytest.fixture
def quiet() -> Iterator[Quiet]:
    """Nodes whose agents are heard through an API server that can go away, and a rule that cordons for silence."""
    made = Quiet(policy=CORDON_SILENT, nodes=8)
    World.sync(made)
    Node.objects.update(ready_since=made.now - timedelta(days=1))
    Cluster.objects.update(watched_at=made.now)
    cluster_settings.set_guards(made.cluster, OFF, actor="test", reason="", now=made.now)
    made.stride = 30
    yield made
    made.uninstall()


def go_away(world: Quiet) -> None:
    """The API server answers nobody: no watch, no agent whose token it would have to vouch for."""
    for name in ALL:
        world.report(node=name)
    world.listen(60)
    world.error = "connection refused"
    for verb in ("get_node", "apply_node", "list_nodes", "list_pods", "evict", "ensure_job", "emit"):
        world.kube.fail(verb, port.Unavailable("connection refused"), times=10_000)


def come_back(world: Quiet) -> None:
    world.error = ""
    world.kube._failures.clear()


def test_inv_33_an_api_server_that_is_away_is_no_fault_of_any_node(quiet: Quiet) -> None:
    go_away(quiet)
    assert quiet.listen(600) == []
    come_back(quiet)
    quiet.listen(60)
    for _ in range(5):
        for name in ALL:
            quiet.report(node=name)
        quiet.listen(60)
    assert not Incident.objects.exists()
    assert (isolated(quiet), Rescue.objects.count()) == ([], 0)


def test_inv_33_nodes_that_an_outage_of_the_api_server_leaves_silent_are_one_storm(quiet: Quiet) -> None:
    """It is back, and says what it last heard: none of its nodes is Ready, and none of their agents is heard."""
    go_away(quiet)
    quiet.listen(300)
    come_back(quiet)
    Node.objects.update(ready=False)
    quiet.listen(420)
    assert Incident.objects.filter(kind="agent", state="open", is_user_fault=False).count() == 8
    assert_storm(quiet, "code agent silent", ALL, cordoned=0)
