"""Invariants 30, 31, 37 on the engine: the nodes that count, the acts without guards, and exclusion up to the last
moment.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kcover.decisions import guards
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Maintenance, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import queries as policies
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision
from kcover_portal.rescue.queries import counts
from tests.codes import code_of
from tests.portal.rescue.test_actions_reboot import WAITS
from tests.portal.rescue.world import CORDON, HEAL, NODE, World

pytestmark = pytest.mark.django_db
OFF = {"storm": {"enabled": False}, "rate": {"enabled": False}, "breaker": {"enabled": False}}
PERCENTAGES: dict[str, Any] = {
    "breaker": {"enabled": True, "limit": "50%"},
    "budget": {"limit": "50%"},
    "rate": {"enabled": True},
    "storm": {"enabled": True},
}
BUDGET = CORDON.replace("rescue.ksyun.com/v1", "kcover.io/v1").replace("actions:", 'budget: "50%", actions:')
EXCLUDE = {guards.EXCLUDE_LABEL: "true"}


@pytest.fixture
def make(make: Callable[..., World]) -> Callable[..., World]:
    def world(policy: str = CORDON, *, nodes: int, **limits: object) -> World:
        one = make(policy, nodes=nodes)
        cluster_settings.set_guards(one.cluster, {**OFF, **limits}, actor="test", reason="", now=one.now)
        return one

    return world


def isolated(world: World) -> list[str]:
    return sorted(node.name for node in world.kube.list_nodes().items if node.unschedulable)


def hurt(world: World, *numbers: int) -> None:
    for number in numbers:
        world.fault(62, node=f"gpu-{number}")


def lose_gpus(world: World, name: str, *, left: int = 0) -> None:
    world.kube.objects.merge("Node", "", name, {"status": {"capacity": {"nvidia.com/gpu": str(left)}}})


def leave_out(world: World, name: str, how: str) -> None:
    """The node is none of those over which limits are counted."""
    match how:
        case "excluded":
            world.kube.label_node(name, EXCLUDE)
        case "without GPUs":
            lose_gpus(world, name)
        case "gone":
            world.kube.delete_node(name)


@pytest.mark.parametrize("how", ["excluded", "without GPUs", "gone"])
@pytest.mark.parametrize("limit", ["breaker", "budget", "the rule's"])
def test_inv_30_a_percentage_is_of_the_eligible_nodes(make: Any, how: str, limit: str) -> None:
    limits = {} if limit == "the rule's" else {limit: {**PERCENTAGES[limit]}}
    world = make(BUDGET if limit == "the rule's" else CORDON, nodes=8, **limits)
    for number in (4, 5, 6, 7, 8):
        leave_out(world, f"gpu-{number}", how)
    world.sync()
    hurt(world, 1, 2, 3)
    world.work()
    assert isolated(world) == ["gpu-1"]  # half of three; of eight it would be four
    held = Decision.objects.filter(answer="hold")
    assert {one.facts["counts"]["eligible"] for one in held} == {3}


def test_inv_30_a_percentage_by_pool_is_counted_over_that_pool(make: Any) -> None:
    world = make(nodes=6, budget={"limit": "50%", "by": "pool"})
    for number in range(1, 7):
        world.kube.label_node(f"gpu-{number}", {"pool": "a" if number < 3 else "b"})
    world.sync()
    assert set(Node.objects.values_list("pool", flat=True)) == {"a", "b"}
    hurt(world, 1, 2)
    world.work()
    assert isolated(world) == ["gpu-1"]


def test_inv_30_guards_hold_back_when_no_node_is_eligible(make: Any) -> None:
    world = make(BUDGET, nodes=1, **PERCENTAGES, floor={"percent": 50})
    hurt(world, 1)
    lose_gpus(world, NODE)
    world.sync()
    settings, rules = fleet.guards_of(world.cluster), policies.candidates()
    found = counts.facts(
        world.node(), settings=settings, now=world.now, kind="xid", code="62", rules=rules, destructive=True
    )
    assert found.eligible == 0
    rule = guards.RuleLimits(name=rules[0].name, budget=rules[0].rule.budget)
    nobody = dict.fromkeys(guards.GUARDS, "user:ann")  # nor does it help to override
    for verdict in (
        guards.isolation(settings, found, now=world.now, rule=rule, overrides=nobody),
        guards.destructive(settings, found, act="drain", now=world.now, overrides=nobody),
    ):
        assert [one.code for one in verdict.held] == ["none_eligible"]


@pytest.mark.parametrize("step", ["drain", "reboot"])
def test_inv_30_a_running_rescue_takes_no_work_away_while_no_node_is_eligible(make: Any, step: str) -> None:
    world = make(HEAL if step == "drain" else WAITS, nodes=1, **PERCENTAGES)
    if step == "drain":
        world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
        world.kube.add_budget("default", "keep", match={"app": "train"})
    hurt(world, 1)
    world.until("waiting", step=step)
    taken = len(world.kube.called("evict"))
    lose_gpus(world, NODE)  # as after a driver that failed to load: its devices are no resources any more
    if step == "drain":
        world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
    for seconds in (5, 600, 900):
        world.pass_time(seconds)
    assert (len(world.kube.called("evict")), world.kube.called("ensure_job")) == (taken, [])
    assert code_of(world.step(step).because) == "none_eligible"
    lose_gpus(world, NODE, left=8)
    for _ in range(3):
        world.pass_time(30)
    assert len(world.kube.called("evict")) == taken + (step == "drain")
    assert len(world.kube.called("ensure_job")) == 1


RACK = "topology.kubernetes.io/rack"
PLACE = {RACK: "A", "kcover.io/switch": "l1", "nvidia.com/gpu.clique": "q", "pool": "p", "zone": "z1"}
SELECTIONS: tuple[dict[str, Any], ...] = (
    {"domains": {"rack": ["A", "B"]}},
    {"domains": {"leaf": ["l1"]}},
    {"domains": {"nvlink": ["q"]}},
    {"labels": {"zone": "z1"}},
    {"pools": ["p", "q"]},
    {"nodes": [NODE, "gpu-2"]},
)


def maintain(world: World, selection: dict[str, Any]) -> Maintenance:
    """A window of an hour. Values of the selection that no node has are there for the others."""
    for number, key in enumerate((RACK, "pool"), start=2):
        world.kube.label_node(f"gpu-{number}", {key: {RACK: "B", "pool": "q"}[key]})
    world.sync()
    return cluster_settings.open_maintenance(
        world.cluster,
        selection=selection,
        starts_at=world.now,
        ends_at=world.now + timedelta(hours=1),
        reason="cables",
        actor="u",
        now=world.now,
    )


@pytest.mark.parametrize("step", ["drain", "reboot"])
@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
def test_inv_37_a_node_in_a_maintenance_window_is_neither_drained_nor_rebooted(
    make: Any, selection: dict[str, Any], step: str
) -> None:
    world = make(HEAL, nodes=3)
    world.kube.label_node(NODE, PLACE)
    world.sync()
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    hurt(world, 1)
    world.until("waiting", step="drain")
    if step == "reboot":  # the window begins between the drain's end and the reboot
        world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
        world.pass_time(5)
        assert world.kube.called("evict")
    window = maintain(world, selection)
    if step == "drain":
        world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
    evicted = len(world.kube.called("evict"))
    # People rebuild the machine, and it comes back without its labels.
    world.kube.label_node(NODE, dict.fromkeys(PLACE, None))
    world.sync()
    for _ in range(5):
        world.pass_time(60)
    assert (len(world.kube.called("evict")), world.kube.called("ensure_job")) == (evicted, [])
    assert "maintenance_because" in (code_of(world.step("drain").because), code_of(world.step("reboot").because))
    cluster_settings.end_maintenance(window, actor="u", reason="", now=world.now)
    for _ in range(10):
        world.pass_time(60)
    assert len(world.kube.called("ensure_job")) == 1


@pytest.mark.parametrize("selection", SELECTIONS[:-1], ids=str)
def test_inv_37_a_window_covers_the_nodes_that_join_its_scope_later(make: Any, selection: dict[str, Any]) -> None:
    world = make(nodes=4)
    world.kube.label_node("gpu-4", PLACE)
    world.sync()
    window = maintain(world, selection)
    world.kube.label_node(NODE, PLACE)
    world.sync()
    hurt(world, 1)
    for name in ("gpu-2", "gpu-3"):
        world.kube.label_node(name, {RACK: "C", "pool": "c"})
    world.sync()
    world.work()
    assert isolated(world) == []
    Node.objects.filter(name="gpu-2").update(labels={}, pool="")
    Maintenance.objects.filter(pk=window.pk).update(members=["gpu-4"])
    hurt(world, 2)
    world.work()
    assert isolated(world) == ["gpu-2"]  # outside of the scope
    cluster_settings.end_maintenance(Maintenance.objects.get(), actor="u", reason="", now=world.now)
    world.pass_time(301)
    world.pass_time(1)
    assert isolated(world) == [NODE, "gpu-2"]


def trip_everything(world: World) -> None:
    """Whatever can hold something back does so from now on."""
    tripped = {
        "storm": {"enabled": True},
        "rate": {"enabled": True},
        "breaker": {"enabled": True, "limit": 1},
        "budget": {"limit": 1},
        "floor": {"percent": 100},
        "cooldown": 86_400,
    }
    cluster_settings.set_guards(world.cluster, tripped, actor="test", reason="", now=world.now)
    hurt(world, 2, 3, 4, 5)
    ends = world.now + timedelta(days=1)
    cluster_settings.open_maintenance(
        world.cluster, starts_at=world.now, ends_at=ends, reason="", actor="u", now=world.now
    )
    world.work()
    assert isolated(world) == [NODE]


def healed(world: World) -> None:
    for _ in range(20):
        world.pass_time(2)
        world.report()


def asked_back(verb: str):
    def ask(world: World) -> None:
        services.request(world.node(), verb, actor="user:ann", reason="", now=world.now)
        world.work()

    return ask


def by_kubectl(world: World) -> None:
    world.kube.uncordon(NODE)
    for _ in range(3):
        world.pass_time(5)


BACK = {"healed": healed, "uncordon": asked_back("uncordon"), "release": asked_back("release"), "kubectl": by_kubectl}


@pytest.mark.parametrize("how", BACK)
def test_inv_31_an_uncordon_passes_every_tripped_guard(make: Any, how: str) -> None:
    world = make(HEAL, nodes=8)
    hurt(world, 1)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    trip_everything(world)
    begun = Entry.objects.latest("pk").pk
    BACK[how](world)
    node = world.kube.get_node(NODE)
    assert isolated(world) == []
    assert not [key for key in (*node.labels, *node.annotations) if key.startswith("kcover.io/")]
    reported = Entry.objects.filter(pk__gt=begun, node=NODE).values_list("verb", flat=True)
    assert any(verb.endswith(".done") for verb in reported)  # and it is on record
    assert ledger.verify("c1").intact


def test_inv_31_tripped_guards_do_not_stop_recording(make: Any) -> None:
    """Faults are taken in, judged and closed as ever."""
    world = make(HEAL, nodes=8)
    hurt(world, 1)
    world.until_reboot_is_asked()
    trip_everything(world)
    hurt(world, 6)
    world.work()
    assert Incident.objects.filter(node__name="gpu-6", state="open").exists()
    assert Decision.objects.filter(node__name="gpu-6").latest("pk").answer == "hold"
    assert Entry.objects.filter(node="gpu-6", verb="decision.hold").exists()


def test_inv_37_an_exclusion_that_only_the_live_node_shows_stops_the_reboot(make: Any) -> None:
    world = make(WAITS, nodes=2)
    hurt(world, 1)
    world.until("waiting", step="reboot")
    world.kube.label_node(NODE, EXCLUDE)  # and the watch is late
    for _ in range(3):
        world.now += timedelta(minutes=21)
        world.work()
    assert world.kube.called("ensure_job") == []
    assert code_of(world.step("reboot").because) == "excluded"


def test_inv_37_an_exclusion_between_two_evictions_stops_the_second(make: Any) -> None:
    world = make(HEAL, nodes=2)
    for number in range(3):
        world.kube.add_pod("default", f"train-{number}", node=NODE)
    evict = world.kube.evict

    def then_excluded(*args: object, **more: object) -> object:
        answer = evict(*args, **more)
        world.kube.label_node(NODE, EXCLUDE)
        world.sync()
        return answer

    world.kube.evict = then_excluded
    hurt(world, 1)
    for _ in range(3):
        world.pass_time(30)
    assert len(world.kube.called("evict")) == 1
    assert code_of(world.step("drain").because) == "excluded"
