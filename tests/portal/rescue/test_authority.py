"""Who may do what to a node, as the engine sees it: a program's word is less than a person's."""

import pytest

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
