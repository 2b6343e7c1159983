"""What needs a person is said as a condition on rows and as a function of one row. They agree, whatever the row has."""

import itertools

import pytest

from kcover_portal.fleet.models import Node
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
MARKS = ({}, {"cordon": True}, {"devices": [["quarantine", "GPU-1"]]})


@pytest.fixture
def rows(world: World) -> list[Rescue]:
    """A rescue of a node of its own with each combination of what the rules read."""
    values = list(itertools.product(Rescue.State, Rescue.Hold, (False, True), MARKS))
    nodes = Node.objects.bulk_create(
        Node(cluster=world.cluster, name=f"of-{number}", created_at=world.now) for number in range(len(values))
    )
    Rescue.objects.bulk_create(
        Rescue(
            cluster=world.cluster,
            node=node,
            origin="manual",
            opened_at=world.now,
            state=state,
            hold=hold,
            needs_human=needs_human,
            marks=marks,
        )
        for node, (state, hold, needs_human, marks) in zip(nodes, values, strict=True)
    )
    found = list(Rescue.objects.filter(node__name__startswith="of-"))
    assert len(found) == 180
    return found


def test_the_kinds_and_kind_of_agree_row_by_row(rows: list[Rescue]) -> None:
    for kind, condition in needs_person.KINDS.items():
        selected = set(Rescue.objects.filter(condition, pk__in=[row.pk for row in rows]).values_list("pk", flat=True))
        assert selected == {row.pk for row in rows if needs_person.kind_of(row) == kind} != set()


def test_each_rescue_is_in_the_one_status_that_status_of_names(rows: list[Rescue]) -> None:
    for status, condition in needs_person.STATUSES.items():
        selected = set(Rescue.objects.filter(condition, pk__in=[row.pk for row in rows]).values_list("pk", flat=True))
        assert selected == {row.pk for row in rows if needs_person.status_of(row) == status} != set()
