"""Plans with a latest start time, and calls that may have begun before it."""

from datetime import timedelta

import pytest

from kcover.plans import kce_actions
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.models import Rescue
from tests.codes import codes_of
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None):
    made = World(policy="")
    Cluster.objects.update(decision_mode="both")
    yield made
    made.uninstall()


def asked(world: World) -> Rescue:
    """A decision system asks for a cordon within half an hour."""
    body = {"nodeName": NODE, "xid": 62, "escalateTime": "30min", "actions": [{"name": "cordon"}]}
    plan = kce_actions.parse(body, now=world.now)
    rescue, _ = services.request_plan(world.node(), plan, actor="token:decision x", payload={}, now=world.now)
    return rescue


def cut(world: World) -> None:
    """The cordon is made and nobody hears so; then the API server is away for longer than the half hour."""
    world.kube.fail("apply_node", port.Unavailable("cut", ambiguous=True), after=True)
    asked(world)
    world.work()
    assert world.kube.get_node(NODE).unschedulable
    assert world.rescue().marks == {}
    world.now += timedelta(minutes=31)


def test_an_expired_rescue_whose_call_may_have_run_needs_a_person(world: World) -> None:
    cut(world)
    world.work()
    rescue = world.rescue()
    assert (rescue.state, rescue.outcome, rescue.needs_human) == ("cancelled", "expired", True)
    assert codes_of(rescue.because)[-1] == "call_may_have_run"
    world.sync()
    services.reconcile(now=world.now)
    assert queries.marked_on(world.node()) == rescue  # and is left to people


def test_a_rescue_whose_call_is_visible_on_the_node_continues(world: World) -> None:
    cut(world)
    world.sync()
    world.work()
    assert (world.rescue().state, world.step("cordon").state) == ("succeeded", "done")


def test_a_rescue_that_never_began_expires_without_a_person(world: World) -> None:
    asked(world)
    fleet.pause(cluster=world.cluster, reason="", actor="user:ann", now=world.now)
    world.work()
    world.now += timedelta(minutes=31)
    world.work()
    rescue = world.rescue()
    assert (rescue.state, rescue.outcome, rescue.needs_human) == ("cancelled", "expired", False)
    assert world.kube.writes == []
