"""Who may do what to a node, as the engine sees it: a program's word is less than a person's."""

import pytest

from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("by_person", "lifted"), [(True, True), (False, False)])
def test_inv_18_only_a_person_lifts_a_foreign_cordon(world: World, by_person: bool, lifted: bool) -> None:
    world.kube.cordon(NODE)
    world.sync()
    who = "user:ann" if by_person else "token:operator kco_1"
    assert services.preview(world.node(), "uncordon", now=world.now, by_person=by_person).steps[0]["args"] == (
        {"foreign": True} if by_person else {}
    )
    services.request(world.node(), "uncordon", actor=who, reason="", now=world.now, by_person=by_person)
    world.work()
    assert world.kube.get_node(NODE).unschedulable is not lifted


def _drain_is_refused(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})


def _drain_may_go_on(world: World) -> None:
    world.kube.objects.remove("PodDisruptionBudget", "default", "keep")


def _close(world: World) -> None:
    incidents.close_by_hand(Incident.objects.get(), actor="user:ann", reason="false alarm", now=world.now)


def test_inv_44_a_fault_closed_by_a_person_stops_what_would_take_work_away(world: World) -> None:
    _drain_is_refused(world)
    world.fault(62)
    world.until("waiting", step="drain")
    _close(world)
    before = len(world.kube.called("evict"))
    _drain_may_go_on(world)
    world.pass_time(20)
    rescue = world.rescue()
    assert (rescue.state, rescue.outcome, rescue.needs_human) == ("cancelled", "void", True)
    assert "the fault is over" in rescue.because
    assert len(world.kube.called("evict")) == before
    assert world.kube.called("ensure_job") == []
    assert world.kube.get_node(NODE).unschedulable, "whoever closed it releases the node, too"


def test_a_reboot_that_was_asked_for_is_seen_through(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    _close(world)
    world.reboot()
    assert world.until("succeeded").outcome == "healed"
    assert not world.kube.get_node(NODE).unschedulable
