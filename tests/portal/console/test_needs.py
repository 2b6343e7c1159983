"""What needs a person, on the home page: nothing is missing, the worst comes first, and no node hides another."""

from datetime import timedelta

import pytest

from kcover_portal import needs_person
from kcover_portal.accounts.queries import Scope
from kcover_portal.console.reads import needs
from kcover_portal.fleet import services as fleet
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from tests.portal.rescue.world import CORDON, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def make():
    made = []

    def world(**options):
        made.append(World(**options))
        return made[-1]

    yield world
    for one in made:
        one.uninstall()


def listed(world: World) -> list[str]:
    return [need.node for need in needs.of(Scope.of(world.cluster), [world.cluster], now=world.now).rows]


def counted(world: World) -> int:
    return sum(needs_person.counts([world.cluster], now=world.now).values())


@pytest.fixture
def denied(make):
    """A node whose rescue was rejected before anything was done: it still takes work."""
    world = make(policy=CORDON)
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
    world.fault(62)
    world.work()
    services.reject(world.rescue(), actor="user:ann", reason="not tonight", now=world.now)
    return world


def test_a_node_whose_rescue_was_denied_stays_in_the_list(denied: World):
    assert listed(denied) == ["gpu-1"]
    for _ in range(4):  # the fault is decided again, and held back each time
        denied.pass_time(60)
        services.sweep(now=denied.now)
        denied.work()
        assert (listed(denied), counted(denied)) == (["gpu-1"], 1)


def test_a_denied_node_that_takes_no_work_is_not_in_the_list(denied: World):
    denied.kube.cordon("gpu-1")
    for _ in range(2):
        denied.pass_time(60)
        services.sweep(now=denied.now)
        denied.work()
    assert listed(denied) == []


def test_every_faulty_node_is_listed_worst_first(make):
    world = make(policy="", nodes=20)
    for number in range(1, 20):
        world.fault(62, node=f"gpu-{number}")
        world.now += timedelta(seconds=1)
    world.fault(79, node="gpu-20")
    world.work()
    fatal = set(Incident.objects.filter(severity="fatal").values_list("node__name", flat=True))
    assert "gpu-20" in fatal
    rows = listed(world)
    assert set(rows) == {f"gpu-{number}" for number in range(1, 21)}
    assert set(rows[: len(fatal)]) == fatal


def test_a_node_with_many_faults_is_one_row_with_its_worst(make):
    world = make(policy="", nodes=2)
    world.fault(62, node="gpu-2")
    world.now += timedelta(seconds=1)
    for slot in range(40):
        world.fault(94, pci=f"0000:{slot:02x}:00")
    world.fault(79)
    world.work()
    found = needs.of(Scope.of(world.cluster), [world.cluster], now=world.now)
    assert (len(found.rows), found.total) == (2, 2)
    [row] = [row for row in found.rows if row.node == "gpu-1"]
    assert (Incident.objects.get(pk=row.record).code, "40" in row.text) == ("79", True)


def test_what_the_list_leaves_out_is_counted_and_linked(make, monkeypatch, person):
    monkeypatch.setattr(needs, "MAX_ROWS", 3)
    world = make(policy="", nodes=5)
    for number in range(1, 6):
        world.fault(79, node=f"gpu-{number}")
    world.work()
    found = needs.of(Scope.of(world.cluster), [world.cluster], now=world.now)
    assert (len(found.rows), found.total, [(more.number, more.page) for more in found.more]) == (
        3,
        5,
        [(2, "incidents")],
    )
    page = person("viewer").get("/").content.decode()
    assert "/incidents/?needs_person=true" in page
