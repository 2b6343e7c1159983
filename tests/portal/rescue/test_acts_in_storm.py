"""What people ask for while a storm is open: it holds what takes work away, unless a named person overrides it."""

from collections.abc import Iterator

import pytest

from kcover import reasons
from kcover_portal.console.reads import storms
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services
from kcover_portal.rescue.control import requests
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue
from tests.codes import codes_of
from tests.portal.policies.texts import policy
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
GUARDS = {"storm": {"enabled": True}, "rate": {"enabled": False}, "breaker": {"enabled": False}}


@pytest.fixture
def storm() -> Iterator[World]:
    """A storm that no rule covers, on gpu-1 to gpu-9 of 24 nodes. Pods run on gpu-1 and on gpu-20."""
    world = World(nodes=24)
    cluster_settings.set_guards(world.cluster, GUARDS, actor="test", reason="", now=world.now)
    for name in ("gpu-1", "gpu-20"):
        world.kube.add_pod("default", f"train-{name}", node=name, labels={"app": "train"})
    break_nodes(world)
    yield world
    world.uninstall()


def break_nodes(world: World) -> None:
    for number in range(1, 10):
        world.fault(74, node=f"gpu-{number}")
    world.work()


def ask(world: World, verb: str, node: str = "gpu-1", *override: str) -> Rescue:
    return services.request(world.node(node), verb, actor="user:ann", reason="r", now=world.now, override=override)


def close(world: World) -> None:
    open_now = Incident.objects.get(kind="storm", state="open")
    incidents.close_by_hand(open_now, actor="user:ann", reason="seen to", now=world.now)


@pytest.mark.parametrize("verb", ["drain", "reboot"])
def test_inv_33_an_act_by_hand_takes_no_work_away_in_a_storm(storm: World, verb: str) -> None:
    assert codes_of(requests.preview(storm.node(), verb, now=storm.now).held_back[0]) == ["storm_code"]
    with pytest.raises(create.RescueRefused) as refused:
        ask(storm, verb)
    assert "storm_code" in codes_of(refused.value.reason)
    close(storm)
    assert requests.preview(storm.node(), verb, now=storm.now).held_back == []
    ask(storm, verb)
    storm.work()
    assert len(storm.kube.called("evict")) == 1


def test_a_node_of_a_storm_can_be_cordoned_and_given_back_by_hand(storm: World) -> None:
    ask(storm, "cordon")
    storm.work()
    assert storm.kube.get_node("gpu-1").unschedulable
    ask(storm, "uncordon")
    storm.work()
    assert not storm.kube.get_node("gpu-1").unschedulable


def test_a_node_outside_of_the_storm_is_drained(storm: World) -> None:
    ask(storm, "drain", "gpu-20")
    storm.work()
    assert len(storm.kube.called("evict")) == 1


def test_a_named_person_overrides_the_storm(storm: World) -> None:
    rescue = ask(storm, "drain", "gpu-1", "storm")
    storm.work()
    assert len(storm.kube.called("evict")) == 1
    rescue.refresh_from_db()
    assert {(row["guard"], row["by"]) for row in rescue.passed_over} >= {("storm", "user:ann")}


def test_inv_33_a_storm_that_opens_after_the_request_holds_it_too() -> None:
    world = World(nodes=24)
    cluster_settings.set_guards(world.cluster, GUARDS, actor="test", reason="", now=world.now)
    world.kube.add_pod("default", "train", node="gpu-1", labels={"app": "train"})
    ask(world, "drain")
    break_nodes(world)
    world.pass_time(3600)
    assert world.kube.called("evict") == []
    assert codes_of(world.rescue().because) == ["storm_code"]
    close(world)
    world.pass_time(60)
    assert len(world.kube.called("evict")) == 1
    world.uninstall()


def test_its_page_says_of_each_node_that_no_rule_covers_the_fault(storm: World) -> None:
    """And not which rule, of many, does not apply."""
    policies.apply(policy("other", codes='["79"]'), author="ops", reason="", now=storm.now)
    storm.fault(74, node="gpu-10")
    storm.work()
    shown = {one.name: one.because for one in storms.nodes_of(Incident.objects.get(kind="storm"), now=storm.now)}
    assert str(reasons.of("need_uncovered", fault="Xid 74")) in shown["gpu-10"]
    assert "79" not in shown["gpu-10"]


@pytest.mark.parametrize("xid", [None, 79])
def test_a_plan_that_names_another_fault_is_held_as_well(storm: World, xid: int | None) -> None:
    verdicts, _ = requests.guard_verdicts(
        storm.node(),
        ["cordon", "drain"],
        settings=fleet.guards_of(storm.cluster),
        overrides={},
        now=storm.now,
        code="" if xid is None else str(xid),
    )
    isolation, drain = verdicts
    assert isolation.held == ()
    assert [reason.code for reason in drain.held] == ["storm_code"]
