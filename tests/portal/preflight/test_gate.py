"""The preflight gate over REST and as a label on nodes: it follows the last plan, and is removed when it ends."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from kcover import reasons
from kcover.preflight import gate
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_selection
from kcover_portal.incidents import services as incidents
from kcover_portal.ledger.models import Entry
from kcover_portal.preflight import queries
from kcover_portal.preflight.models import PairPlan, PairTest, PreflightGate
from kcover_portal.preflight.services import gate_labels, pair_plans, pair_verdicts
from tests.portal.api.conftest import Api, caller
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy="", nodes=4)
    Cluster.objects.update(nccl_image="pytorch:2", preflight_labels=True)
    made.cluster.refresh_from_db()
    yield made
    made.uninstall()


def ran(world: World, *failing: int, **states: str) -> PairPlan:
    """A plan of all nodes whose tests ended; ``failing``: places of tests that failed, the others passed."""
    nodes = node_selection.nodes(world.cluster)
    plan = pair_plans.begin(world.cluster, nodes, pair_plans.Wish(rounds=3), actor="user:ann", now=world.now)
    PairTest.objects.filter(plan=plan).update(state="passed", finished_at=world.now, **states)
    PairTest.objects.filter(plan=plan, place__in=failing).update(state="failed")
    while pair_verdicts.go_on(plan, now=world.now):
        plan.refresh_from_db()
        plan.tests.filter(state="pending").update(state="passed")
    plan.refresh_from_db()
    assert plan.state == "finished"
    return plan


def gates(world: World) -> list[str]:
    rows = queries.gates(Node.objects.filter(cluster=world.cluster).order_by("name"))
    return [queries.gate_of(row, now=world.now).value for row in rows]


def labels(world: World) -> list[str | None]:
    """The labels after a round."""
    gate_labels.write(Cluster.objects.get(pk=world.cluster.pk), clock=world.clock)
    world.sync()
    return [node.labels.get(gate.LABEL) for node in Node.objects.filter(cluster=world.cluster).order_by("name")]


def slow(world: World, name: str) -> None:
    because = reasons.of("pair_cleared", plan="1", ran=1, threshold="350")
    seen = incidents.PortalFault(kind="preflight", code="slow", because=because, source="preflight")
    incidents.keep_fault(world.node(name), seen, boot_id="b", now=world.now)


def test_without_a_plan_a_gate_is_unknown(world: World) -> None:
    assert gates(world) == ["unknown"] * 4
    assert labels(world) == [None] * 4
    assert not Entry.objects.filter(verb__startswith="preflight_label").exists()


def test_a_clean_plan_opens_gates_until_it_is_old(world: World) -> None:
    ran(world)
    assert gates(world) == ["passed"] * 4
    assert labels(world) == ["passed"] * 4
    before = Entry.objects.count()
    assert labels(world) == ["passed"] * 4
    assert Entry.objects.count() == before  # nothing to write
    world.now += gate.GATE_AGE
    assert labels(world) == [None] * 4
    assert not PreflightGate.objects.exclude(label="").exists()


def test_an_incident_fails_the_gate_and_its_end_does_not_pass_it_again(world: World) -> None:
    ran(world)
    slow(world, "gpu-2")
    assert labels(world) == ["passed", "failed", "passed", "passed"]
    PreflightGate.objects.filter(node__name="gpu-2").update(passed_at=None)
    because = reasons.of("pair_cleared", plan="1", ran=1, threshold="350")
    keys = list(world.node("gpu-2").incidents.values_list("pk", flat=True))
    incidents.close(keys, because=because, actor="system", now=world.now)
    assert labels(world) == ["passed", None, "passed", "passed"]


def test_another_machine_of_the_same_name_is_unknown(world: World) -> None:
    ran(world)
    Node.objects.filter(name="gpu-3").update(uid="another")
    assert gates(world) == ["passed", "passed", "unknown", "passed"]


def test_a_later_plan_without_a_figure_ends_the_gate(world: World) -> None:
    ran(world)
    labels(world)
    nodes = node_selection.nodes(world.cluster)
    plan = pair_plans.begin(world.cluster, nodes, pair_plans.Wish(rounds=1), actor="user:ann", now=world.now)
    first = plan.tests.order_by("place")[0]
    PairTest.objects.filter(plan=plan).update(state="passed")
    PairTest.objects.filter(pk=first.pk).update(state="error")
    pair_verdicts.go_on(plan, now=world.now)
    unknown = {first.first.name, first.second.name}
    names = [f"gpu-{number}" for number in range(1, 5)]
    assert labels(world) == [None if name in unknown else "passed" for name in names]


def test_excluded_nodes_are_left_alone(world: World) -> None:
    ran(world)
    world.kube.label_node("gpu-1", {"kcover.io/exclude": "true"})
    world.sync()
    assert labels(world) == [None, "passed", "passed", "passed"]


def test_labels_are_removed_once_they_are_switched_off(world: World) -> None:
    ran(world)
    labels(world)
    Cluster.objects.update(preflight_labels=False)
    assert queries.clusters_with_gate_labels() == [world.cluster.pk]
    assert labels(world) == [None] * 4
    assert queries.clusters_with_gate_labels() == []


@pytest.mark.parametrize("quiet", [{"mode": "shadow"}, {"mode": "paused"}, {"acted_on_by": "NVSentinel"}], ids=str)
def test_no_label_is_written_in_modes_without_writes(world: World, quiet: dict[str, Any]) -> None:
    ran(world)
    Cluster.objects.update(**quiet)
    assert labels(world) == [None] * 4


def test_schedulers_read_the_gate(world: World) -> None:
    world.now = timezone.now()
    plan = ran(world)
    slow(world, "gpu-2")
    viewer: Api = caller("viewer", world.now)
    found = viewer.get("preflight/gate?cluster=c1").json()["results"]
    assert [(row["node"], row["gate"]) for row in found] == [
        ("gpu-1", "passed"),
        ("gpu-2", "failed"),
        ("gpu-3", "passed"),
        ("gpu-4", "passed"),
    ]
    assert {row["plan"] for row in found} == {plan.pk}
    assert viewer.get("preflight/gate?node=gpu-3").json()["results"][0]["cluster"] == "c1"
    elsewhere = caller("viewer", world.now, cluster=Cluster.objects.create(name="c2", created_at=world.now))
    assert elsewhere.get("preflight/gate").json()["results"] == []
