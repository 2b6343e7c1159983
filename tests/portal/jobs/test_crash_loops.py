"""Jobs that keep failing: each restart comes later, then a person is asked. A fault of a node is no crash loop."""

from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import services
from kcover_portal.jobs.models import JobOrder, PodFailure
from kcover_portal.jobs.services import recovery
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Rescue
from tests.portal.jobs.job_world import JobWorld
from tests.portal.rescue.test_actions_restart_jobs import add_job

pytestmark = pytest.mark.django_db
FAILED = reasons.of("job_container_failed", container="main", pod="train/llm-0", exit_code=1)


def recover(world: JobWorld) -> JobOrder | None:
    pod = next(pod for pod in world.kube.list_pods(namespace="train") if pod.name == "llm-0")
    return services.recover_pod(world.cluster, pod, because=FAILED, now=world.now)


def test_a_crash_loop_ends_with_a_person(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1")
    waits = []
    for _ in range(recovery.MAX_RESTARTS_PER_JOB):
        order = recover(world)
        assert order is not None
        waits.append((order.due_at - world.now).total_seconds())
        world.now = order.due_at
        world.until_settled(order)
        world.now += timedelta(seconds=31)
    assert waits == [0, 30, 60, 120, 240]
    held = recover(world)
    assert held is not None
    assert (held.state, held.why) == ("held", reasons.of("job_crash_loop", count=5))
    assert recover(world) is None
    assert Entry.objects.filter(verb="job.settled", data__state="held").count() == 1


@pytest.mark.parametrize(
    ("kind", "user_fault", "second_node", "waits"),
    [
        ("xid", False, "gpu-2", [0, 0, 0]),
        ("xid", False, "gpu-1", [0, 0, 30]),  # the node explains one failure: the job came back to it
        ("xid", True, "gpu-2", [0, 30, 60]),
        ("pod", False, "gpu-2", [0, 30, 60]),
    ],
)
def test_failures_that_a_fault_of_the_node_explains_are_no_crash_loop(
    world: JobWorld, kind: str, user_fault: bool, second_node: str, waits: list[int]
) -> None:
    add_job(world, "llm", "gpu-1")
    seen = []
    for node in ("gpu-1", second_node, "gpu-1"):
        order = recover(world)
        assert order is not None
        seen.append((order.due_at - world.now).total_seconds())
        fail_on(world, order, node)
        if not Rescue.objects.filter(node__name=node).exists():
            take_in_hand(world, node, kind=kind, user_fault=user_fault)
        world.now = order.due_at
        world.until_settled(order)
        world.now += timedelta(seconds=31)
    assert seen == waits


@pytest.mark.parametrize(("opened", "closed", "wait"), [(299, None, 0), (301, None, 30), (-60, -1, 30), (-60, 1, 0)])
def test_a_fault_of_the_node_explains_failures_of_its_time(
    world: JobWorld, opened: int, closed: int | None, wait: int
) -> None:
    add_job(world, "llm", "gpu-1")
    order = recover(world)
    assert order is not None
    fail_on(world, order, "gpu-1")
    take_in_hand(world, "gpu-1", kind="xid", opened=opened, closed=closed)
    world.until_settled(order)
    world.now += timedelta(seconds=31)
    second = recover(world)
    assert second is not None
    assert (second.due_at - world.now).total_seconds() == wait


def fail_on(world: JobWorld, order: JobOrder, node: str) -> None:
    """Stores that a container on this node ended now, and that this order is about it."""
    PodFailure.objects.create(
        cluster=world.cluster,
        namespace=order.namespace,
        kind=order.kind,
        name=order.name,
        pod="llm-0",
        pod_uid=f"uid-{order.pk}",
        container="main",
        node=node,
        exit_code=1,
        at=world.now,
        seen_at=world.now,
        order=order,
    )


def take_in_hand(
    world: JobWorld, name: str, *, kind: str, user_fault: bool = False, opened: int = 0, closed: int | None = None
) -> None:
    """A rescue of a node for a fault, opened and closed so many seconds from now."""
    node, _ = Node.objects.get_or_create(cluster=world.cluster, name=name, defaults={"created_at": world.now})
    incident, _ = Incident.objects.get_or_create(
        cluster=world.cluster,
        node=node,
        kind=kind,
        code="79",
        defaults={"is_user_fault": user_fault, "opened_at": world.now, "last_at": world.now},
    )
    rescue = Rescue.objects.create(
        cluster=world.cluster,
        node=node,
        origin="policy",
        requested_by="policy",
        requester_kind="policy",
        fault_kind=kind,
        plan_hash="0",
        opened_at=world.now + timedelta(seconds=opened),
        closed_at=None if closed is None else world.now + timedelta(seconds=closed),
        state="running" if closed is None else "succeeded",
    )
    rescue.incidents.add(incident)
