"""Guards hold orders about jobs; approvers override them, and people are notified."""

from datetime import timedelta

import pytest

from kcover.notify import events
from kcover_portal import needs_person
from kcover_portal.fleet.models import Cluster, Maintenance
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import services
from kcover_portal.jobs.models import JobOrder
from kcover_portal.ledger.models import Entry
from kcover_portal.notify.services import entry_events
from tests.codes import codes_of
from tests.portal.jobs.job_world import JobWorld
from tests.portal.jobs.test_failed_pods import Watch
from tests.portal.rescue.test_actions_restart_jobs import add_job, deleted

pytestmark = pytest.mark.django_db


@pytest.fixture
def watch(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(world, monkeypatch)


def many_faulty_nodes(world: JobWorld) -> None:
    """More nodes with a hardware fault than chance explains."""
    for number in range(1, 10):
        world.kube.add_node(f"gpu-{number + 10}", gpus=8)
    world.sync()
    for number in range(1, 10):
        world.fault(62, node=f"gpu-{number + 10}")


def fail(world: JobWorld, watch: Watch, *names: str) -> list[JobOrder]:
    for number, name in enumerate(names, 1):
        add_job(world, name, f"gpu-{number}")
        world.kube.fail_container("train", f"{name}-0")
    return watch.look()


def test_jobs_that_fail_on_many_nodes_wait_as_in_a_storm(world: JobWorld, watch: Watch) -> None:
    orders = fail(world, watch, "one", "two", "three")
    world.work()
    for order in orders:
        order.refresh_from_db()
        assert (order.state, codes_of(order.because)) == ("running", ["storm_code"])
        assert world.now + timedelta(seconds=5) <= order.due_at <= world.now + timedelta(seconds=15)
    assert deleted(world) == []
    world.now += timedelta(minutes=6)
    assert {world.until_settled(order).state for order in orders} == {"done"}


def test_a_job_that_keeps_failing_is_no_storm(world: JobWorld, watch: Watch) -> None:
    nodes = ("gpu-1", "gpu-2", "gpu-3")
    add_job(world, "llm", *nodes)
    for number in range(3):
        world.kube.fail_container("train", f"llm-{number}")
        (order,) = watch.look()
        world.now = max(world.now, order.due_at)
        assert world.until_settled(order).state == "done"
        for pod in world.kube.list_pods(namespace="train"):
            world.kube.objects.edit("Pod", "train", pod.name, lambda m: m["status"].pop("containerStatuses", None))
        world.now += timedelta(seconds=31)


def test_many_faulty_nodes_hold_orders_of_automation_and_operators_but_not_of_approvers(
    world: JobWorld, watch: Watch
) -> None:
    many_faulty_nodes(world)
    (order,) = fail(world, watch, "llm")
    world.work()
    order.refresh_from_db()
    assert codes_of(order.because)[0] == "rate"
    add_job(world, "other", "gpu-2")
    with pytest.raises(services.OrderRefused) as held:
        world.order(name="other")
    assert held.value.reason.code == "rate"
    settled = world.until_settled(world.order(name="other", may_approve=True))
    assert settled.state == "done"
    noted = Entry.objects.filter(verb="job.ordered").latest("sequence").data["passed_over"]
    assert [reason["code"] for reason in noted] == ["rate"]
    assert deleted(world) == ["other-0"]


def test_an_excluded_node_holds_the_restart_that_its_pod_asks_for(world: JobWorld, watch: Watch) -> None:
    (order,) = fail(world, watch, "llm")
    world.kube.label_node("gpu-1", {"kcover.io/exclude": "true"})
    world.sync()
    world.work()
    order.refresh_from_db()
    assert codes_of(order.because) == ["excluded"]
    add_job(world, "other", "gpu-1")
    assert world.until_settled(world.order(name="other")).state == "done"


def test_a_maintenance_window_holds_too(world: JobWorld, watch: Watch) -> None:
    (order,) = fail(world, watch, "llm")
    Maintenance.objects.create(
        cluster=world.cluster,
        starts_at=world.now,
        ends_at=world.now + timedelta(hours=1),
        created_by="ann",
    )
    world.work()
    order.refresh_from_db()
    assert codes_of(order.because) == ["maintenance"]
    world.now += timedelta(hours=1)
    assert world.until_settled(order).state == "done"


def test_a_restart_that_has_begun_continues(world: JobWorld, watch: Watch) -> None:
    """Half of a job does not run, so a storm that begins meanwhile does not hold it."""
    (order,) = fail(world, watch, "llm")
    world.work()
    assert deleted(world) == ["llm-0"]
    many_faulty_nodes(world)
    assert world.until_settled(order).state == "done"


def test_an_order_that_waits_for_a_person_is_recorded_and_counted(world: JobWorld, watch: Watch) -> None:
    Cluster.objects.update(job_recovery="approve")
    (order,) = fail(world, watch, "llm")
    assert order.state == "held"
    assert needs_person.counts([world.cluster], now=world.now)["c1", "job"] == 1
    replaced = world.order(may_approve=True)
    assert world.until_settled(replaced).state == "done"
    assert needs_person.counts([world.cluster], now=world.now)["c1", "job"] == 0
    entries = Entry.objects.filter(verb__in=entry_events.VERBS, verb__startswith="job.").order_by("sequence")
    found = list(entry_events.of_entries(list(entries), now=world.now))
    assert [(it.event.kind, [(move.action, move.alert) for move in it.moves]) for it in found] == [
        ("job.human", [("trigger", f"job-{order.pk}")]),
        ("job.ended", [("resolve", f"job-{order.pk}")]),
        ("job.ended", [("resolve", f"job-{replaced.pk}")]),
    ]
    assert set(events.KINDS) >= {"job.human", "job.ended"}
    assert Incident.objects.get().state == "closed"
