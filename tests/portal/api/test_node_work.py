"""``nodes/{cluster}/{name}/work``: the jobs and pods of a node."""

import pytest

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.jobs import queries as jobs
from kcover_portal.kube import port
from tests.kube_fake import FakeCluster
from tests.portal.api.conftest import Api, caller, problem, run_job

pytestmark = pytest.mark.django_db
PATH = "nodes/east/gpu-1/work"


@pytest.fixture
def kube(node: Node) -> FakeCluster:
    jobs.forget()
    return fleet.connect(node.cluster)  # type: ignore[return-value]  # the fake of these tests


def test_the_pods_of_a_node_tell_their_job_and_what_a_drain_does(node: Node, kube: FakeCluster, viewer: Api) -> None:
    kube.add_workload("PyTorchJob", "train", "llm")
    run_job(kube, "llm", (1,))
    kube.add_pod("kube-system", "exporter", node="gpu-1", owner_kind="DaemonSet", owner_name="exporter")
    found = viewer.get(PATH).json()
    assert [(pod["name"], pod["owner"], pod["gpus"], pod["evicted"]) for pod in found["pods"]] == [
        ("llm-1", "PyTorchJob llm", 8, True),
        ("train-0", "", 0, True),
        ("exporter", "DaemonSet exporter", 0, False),
    ]
    assert [(job["name"], job["nodes"]) for job in found["jobs"]] == [("llm", ["gpu-1"])]
    assert (found["more"], found["unavailable"], found["unavailable_reason"]) == (0, None, None)
    far = Cluster.objects.create(name="far", created_at=node.created_at)
    problem(caller("viewer", node.created_at, cluster=far).get(PATH), 404)


def test_a_cluster_that_does_not_answer_has_a_reason(node: Node, kube: FakeCluster, viewer: Api) -> None:
    kube.fail("list_pods", port.Unavailable("down"))
    found = viewer.get(PATH).json()
    assert (found["jobs"], found["pods"]) == ([], [])
    assert found["unavailable_reason"]["code"] == "cluster_unavailable"
