"""What needs attention is said as a condition on rows and as a function of one row. They agree on every row."""

import importlib
import itertools

import pytest
from django.apps import apps

from kcover.decisions import guards
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.rescue.models import Decision, Rescue
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


def test_each_rescue_has_exactly_one_status(rows: list[Rescue]) -> None:
    for status, condition in needs_person.STATUSES.items():
        selected = set(Rescue.objects.filter(condition, pk__in=[row.pk for row in rows]).values_list("pk", flat=True))
        assert selected == {row.pk for row in rows if needs_person.status_of(row) == status} != set()


LIMITS = {"reboots_repeat": {"repeats": {"limit": 1}}, "inspection": {"ladder": {"reboots": 1}}}


@pytest.fixture(params=LIMITS)
def asked(world: World, request: pytest.FixtureRequest) -> Decision:
    """The decision about a fault that came back after a reboot, of which there may be one."""
    cluster_settings.set_guards(world.cluster, LIMITS[request.param], actor="t", reason="", now=world.now)
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")
    assert not Decision.objects.filter(needs_person=True).exists()
    world.pass_time(60)
    world.fault(62)
    world.work()
    found = Decision.objects.latest("pk")
    assert (found.answer, [why.code for why in found.reasons]) == ("hold", ["rule_matches", request.param])
    return found


def test_a_decision_for_a_person_is_marked(asked: Decision) -> None:
    assert asked.needs_person
    assert list(needs_person.decisions_for_a_person()) == [asked]
    assert [row.pk for row in needs_person.unhandled_incidents()] == [asked.incident_id]


def test_a_decision_of_an_older_portal_is_judged_when_it_is_made_again(world: World, asked: Decision) -> None:
    Decision.objects.update(needs_person=False)  # what the column has where an older portal adds the row
    assert not needs_person.decisions_for_a_person().exists()
    world.pass_time(guards.REDECIDE_AFTER.total_seconds() + 1)
    world.work()
    again = needs_person.decisions_for_a_person().get()
    assert (again.pk, again.count > asked.count) == (asked.pk, True)


def test_the_migration_judges_the_decisions_about_open_faults(asked: Decision, monkeypatch: pytest.MonkeyPatch) -> None:
    migration = importlib.import_module("kcover_portal.rescue.migrations.0005_judge_decisions")
    assert not migration.Migration.atomic
    over = Decision.objects.exclude(incident__state="open").first()
    assert over is not None
    Decision.objects.filter(pk=over.pk).update(answer="hold", because=asked.because)
    before = set(Decision.objects.values_list("pk", "needs_person"))
    assert (over.pk, False) in before
    Decision.objects.update(needs_person=False)
    monkeypatch.setattr(migration, "PAGE", 1)
    migration.judge(apps, None)
    assert set(Decision.objects.values_list("pk", "needs_person")) == before
