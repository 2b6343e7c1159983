"""Features of the fake only: it plays kubelet and people, fails on request, and records calls."""

from datetime import UTC, datetime

import pytest

from kcover_portal.kube import port
from tests import kube_fake as fake

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
CORDON = port.NodeChange(cordon=True)


@pytest.fixture
def cluster():
    made = fake.FakeCluster(clock=lambda: NOW)
    made.add_node("gpu-1", boot_id="boot-1")
    return made


def test_a_reboot_is_a_new_boot_id_and_ready_again(cluster):
    before = cluster.list_nodes().resource_version
    boot_id = cluster.reboot("gpu-1")
    states = [(e.node.ready, e.node.boot_id) for e in cluster.watch_nodes(before, timeout=0) if e.node]
    assert states == [(False, "boot-1"), (False, boot_id), (True, boot_id)]
    assert cluster.get_node("gpu-1").ready_since == NOW


def test_deletions_are_finished_by_the_kubelet(cluster):
    pod = cluster.add_pod("ns", "train", node="gpu-1")
    cluster.evict("ns", "train", uid=pod.uid)
    assert [found.deleting for found in cluster.list_pods(node="gpu-1")] == [True]
    assert cluster.finish_deletions(node="gpu-2") == []
    assert cluster.finish_deletions() == ["train"]
    assert cluster.list_pods(node="gpu-1") == []


def test_a_budget_follows_the_pods_or_is_counted_down(cluster):
    pods = [cluster.add_pod("ns", f"p{i}", node="gpu-1", labels={"a": str(i % 2)}) for i in range(4)]
    cluster.add_budget("ns", "follows", match={"a": "0"}, min_available=1)
    cluster.add_budget("ns", "counted", match={"a": "1"}, disruptions_allowed=1)
    answers = [cluster.evict("ns", pod.name, uid=pod.uid) for pod in pods]
    assert [type(answer) for answer in answers] == [port.Evicted, port.Evicted, port.Blocked, port.Blocked]
    cluster.add_pod("ns", "spare", labels={"a": "0"})
    assert cluster.evict("ns", "p2", uid=pods[2].uid) == port.Evicted()


def test_a_recreated_pod_has_another_uid(cluster):
    old = cluster.add_pod("ns", "train-0", node="gpu-1", owner_kind="StatefulSet")
    new = cluster.replace_pod("ns", "train-0")
    assert (new.name, new.owner_kind, new.uid != old.uid) == ("train-0", "StatefulSet", True)


def test_people_cordon_and_uncordon(cluster):
    cluster.apply_node("gpu-1", CORDON)
    cluster.uncordon("gpu-1")
    assert not cluster.get_node("gpu-1").unschedulable
    cluster.cordon("gpu-1")
    assert cluster.apply_node("gpu-1", CORDON)[0].unschedulable


def test_a_call_fails_before_or_after_its_work(cluster):
    cluster.fail("apply_node", port.Unavailable("cut", ambiguous=True), name="gpu-2")
    cluster.fail("apply_node", port.Unavailable("busy"), times=2)
    for _ in range(2):
        with pytest.raises(port.Unavailable, match="busy"):
            cluster.apply_node("gpu-1", CORDON)
    assert cluster.writes == []
    cluster.fail("apply_node", port.Unavailable("cut", ambiguous=True), after=True)
    with pytest.raises(port.Unavailable, match="cut"):
        cluster.apply_node("gpu-1", CORDON)
    assert cluster.get_node("gpu-1").unschedulable
    assert [(call.verb, call.kind, call.name) for call in cluster.writes] == [("apply_node", "Node", "gpu-1")]
    assert len(cluster.called("apply_node", name="gpu-1")) == 3


def test_a_forgotten_history_has_to_be_listed_again(cluster):
    old = cluster.list_nodes().resource_version
    cluster.cordon("gpu-1")
    cluster.objects.compact()
    with pytest.raises(port.Expired):
        list(cluster.watch_nodes(old, timeout=0))


def test_a_job_ends_as_its_controller_says(cluster):
    cluster.add_namespace("kcover-jobs")
    for name, succeeded in (("good", True), ("bad", False)):
        spec = port.JobSpec(name=name, namespace="kcover-jobs", node="gpu-1", image="i", command=("c",))
        made = cluster.ensure_job(spec)
        assert (made.exists, made.active, made.succeeded, made.failed) == (True, 0, 0, 0)
        cluster.finish_job("kcover-jobs", name, succeeded=succeeded)
    assert cluster.job_state("kcover-jobs", "good").succeeded == 1
    assert cluster.job_state("kcover-jobs", "bad").reason == "BackoffLimitExceeded"


def test_a_container_fails_and_its_job_can_be_read(cluster):
    cluster.add_workload("PyTorchJob", "ns", "llm", labels={"kcover.io/cascading-recovery": "true"})
    cluster.add_pod("ns", "llm-0", owner_kind="PyTorchJob", owner_name="llm")
    cluster.fail_container("ns", "llm-0", exit_code=1, message="NCCL")
    (pod,) = cluster.list_pods(namespace="ns")
    assert [(failure.name, failure.finished_at) for failure in pod.failures] == [("main", NOW)]
    assert cluster.workload("ns", pod.owner_kind, pod.owner_name).labels["kcover.io/cascading-recovery"] == "true"
