"""A later clean run of a node ends the incidents of an earlier one; nothing less does."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.preflight import services
from tests.codes import code_of
from tests.portal.preflight.test_runs import raw, receive, reports
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=4)
    yield made
    made.uninstall()


def flagged(world: World) -> None:
    """Nodes 2 (slow) and 3 (abnormal) have an incident."""
    for body in reports("both"):
        receive(world, body)
    receive(world, raw(3, gpu_check=2), uid="alone")
    assert services.report_verdicts(now=world.now) == 2
    world.now += timedelta(minutes=5)


def rerun(world: World, **more: Any) -> None:
    for node in range(1, 5):
        receive(world, raw(node, **more.get(f"n{node}", {})), uid="later")


def states() -> dict[str, str]:
    return dict(Incident.objects.values_list("code", "state"))


def test_a_clean_run_closes_both(world: World) -> None:
    flagged(world)
    rerun(world)
    assert states() == {"slow": "closed", "abnormal": "closed"}
    assert {code_of(one.closed_because) for one in Incident.objects.all()} == {"preflight_cleared"}


def test_a_late_clean_run_closes_no_newer_fault(world: World) -> None:
    tested_at = world.now - timedelta(minutes=1)
    flagged(world)
    for node in range(1, 5):
        workload = services.Workload(cluster=world.cluster, namespace="ml", name="job", uid="earlier")
        run = services.receive(workload, raw(node), at=tested_at, now=world.now).run
    assert (run.state, run.abnormal) == ("complete", [])
    assert states() == {"slow": "open", "abnormal": "open"}


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({"n3": {"storage_check": 0}}, {"slow": "closed", "abnormal": "open"}),  # a check that did not run
        ({"n2": {"failed": {(0, 1)}}}, {"slow": "open", "abnormal": "closed"}),  # one slot failed
        ({"n1": {"failed": {(0, 2)}}}, {"slow": "open", "abnormal": "closed"}),  # its peer says so
        ({"n4": {"gpu_check": 2}}, {"slow": "open", "abnormal": "closed"}),  # it missed its slot with node 4
        ({"n3": {"gpu_check": 2}}, {"slow": "open", "abnormal": "open"}),
    ],
)
def test_a_run_that_proves_less_closes_less(world: World, later: Any, expected: dict[str, str]) -> None:
    flagged(world)
    rerun(world, **later)
    assert states() == expected


def test_an_incomplete_run_closes_no_incident(world: World) -> None:
    flagged(world)
    for node in (1, 2, 3):
        run = receive(world, raw(node), uid="later").run
    services.expire(run.pk, now=run.due_at)
    assert states() == {"slow": "open", "abnormal": "open"}


def test_inv_04_a_late_run_never_closes_a_newer_fault(world: World) -> None:
    for node in (1, 2, 4):
        receive(world, raw(node), uid="clean")
    world.now += timedelta(minutes=1)
    flagged(world)
    receive(world, raw(3), uid="clean")
    assert states() == {"slow": "open", "abnormal": "open"}


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("30min", 1800), (90, 90), ("90s", 90)])
def test_the_time_to_collect_is_written_as_people_write_it(world: World, text: object, seconds: int) -> None:
    cluster_settings.set_cluster(world.cluster, {"preflight_within": text}, actor="test", reason="", now=world.now)
    world.cluster.refresh_from_db()
    assert world.cluster.preflight_within == seconds
    run = receive(world, raw(1)).run
    assert run.due_at - run.first_at == timedelta(seconds=seconds)


def test_a_run_keeps_the_time_that_its_first_report_set(world: World) -> None:
    workload = services.Workload(cluster=world.cluster, namespace="ml", name="job", uid="u9")
    first = services.receive(workload, raw(1), now=world.now, within=timedelta(minutes=2)).run
    world.now += timedelta(seconds=119)
    again = services.receive(workload, raw(2), now=world.now, within=timedelta(hours=2)).run
    assert again.due_at == first.due_at == first.first_at + timedelta(minutes=2)
    world.now += timedelta(seconds=1)
    assert services.receive(workload, raw(3), now=world.now).change == "restarted"
