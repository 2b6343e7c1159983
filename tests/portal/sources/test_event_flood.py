"""Events that a user writes about pods of a namespace of their own, and what they cost everybody else."""

from collections.abc import Iterator

import pytest

from kcover_portal.jobs.models import JobOrder
from kcover_portal.kube import port
from kcover_portal.sources.services import event_feed
from tests.portal.rescue.test_actions_restart_jobs import add_job
from tests.portal.sources.test_kube_events import ORDER, Events

pytestmark = pytest.mark.django_db
MANY = 50


@pytest.fixture
def events(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    one = Events(monkeypatch)
    yield one
    one.world.uninstall()


def test_orders_about_pods_of_one_namespace_cost_one_list(events: Events) -> None:
    for number in range(MANY):
        events.add("Asked", "please", kind="Pod", node=f"nobody-{number}", namespace="team-a", annotations=ORDER)
    events.look()
    assert len(events.world.kube.called("list_pods")) < MANY


def test_a_hostile_pod_does_not_stop_the_orders_of_others(events: Events) -> None:
    kube = events.world.kube
    for name, node in (("a-hostile", "gpu-1"), ("llm", "gpu-2")):
        add_job(events.world, name, node, protected="job")
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "a%b", "uid": "u", "controller": True}
    kube.objects.merge("PyTorchJob", "train", "a-hostile", {"metadata": {"ownerReferences": [reference]}})
    kube.fail("workload", port.RefusedByServer("400 BadRequest: Name parameter invalid"), times=1_000, name="a%b")
    for name in ("a-hostile", "llm"):
        events.add("Asked", "please", kind="Pod", node=f"{name}-0", namespace="train", annotations=ORDER)
    events.look()
    assert JobOrder.objects.filter(name="llm").exists()


def test_one_namespace_leaves_room_for_the_orders_of_others(events: Events) -> None:
    kube = events.world.kube
    add_job(events.world, "llm", "gpu-1", protected="job")
    for number in range(event_feed.MAX_ORDERS_OF_NAMESPACE + 1):
        events.add("Asked", "please", kind="Pod", node=f"nobody-{number}", namespace="team-a", annotations=ORDER)
    events.add("Asked", "please", kind="Pod", node="llm-0", namespace="train", annotations=ORDER)
    kube.fail("list_pods", port.RefusedByServer("403 Forbidden"), times=1)
    assert events.look().error["code"] in ("event_orders_many", "cluster_rejected")
    assert JobOrder.objects.get().name == "llm"
