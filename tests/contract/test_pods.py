"""Pods: lists, identity by uid, and eviction."""

import functools
from datetime import UTC, datetime, timedelta

import pytest

from kcover_portal.kube import port


@pytest.fixture
def node(rig):
    name = rig.name("gpu")
    rig.node(name)
    return name


def test_pods_of_a_node_are_distinguished_by_kind(rig, node):
    rig.pod("bare", node=node, gpus=2)
    rig.pod("daemon", node=node, owner="DaemonSet")
    rig.pod("replica", node=node, owner="ReplicaSet", labels={"training.kubeflow.org/job-name": "llm"})
    rig.pod("mirror", node=node, annotations={"kubernetes.io/config.mirror": "hash"})
    rig.pod("done", node=node, phase="Succeeded")
    rig.pod("elsewhere", node=rig.name("other"))
    found = {pod.name: pod for pod in rig.cluster.list_pods(node=node)}
    assert set(found) == {"bare", "daemon", "replica", "mirror", "done"}
    assert all(pod.namespace == rig.namespace and pod.node == node and pod.uid for pod in found.values())
    bare, replica = found["bare"], found["replica"]
    assert (bare.controller, bare.gpus, bare.ready, bare.phase) == (False, 2, True, "Running")
    assert (replica.controller, replica.owner_kind, replica.owner_name) == (True, "ReplicaSet", "owner")
    assert replica.job == "llm"
    assert [pod.name for pod in found.values() if pod.daemonset] == ["daemon"]
    assert [pod.name for pod in found.values() if pod.mirror] == ["mirror"]
    assert [pod.name for pod in found.values() if pod.terminal] == ["done"]
    assert not any(pod.deleting for pod in found.values())


def test_pods_are_found_by_namespace_and_labels(rig, node):
    rig.pod("a", node=node, labels={"job": "x", "rank": "0"})
    rig.pod("b", node=node, labels={"job": "x", "rank": "1"})
    rig.pod("c", node=node)
    found = rig.cluster.list_pods(namespace=rig.namespace, labels={"job": "x"})
    assert sorted(pod.name for pod in found) == ["a", "b"]


def test_a_watch_shows_why_a_container_ended(rig, node):
    version = rig.cluster.pods_version()
    end = {"reason": "Error", "exitCode": 3, "message": "NCCL", "finishedAt": "2026-11-21T07:00:00Z"}
    rig.pod("crashed", node=node, status={"containerStatuses": [_container(end)]})
    rig.pod("killed", node=node, status={"containerStatuses": [_container({**end, "reason": "OOMKilled"})]})
    events = rig.cluster.watch_pods(version, timeout=max(1, rig.patience / 2) if rig.patience else 0)
    seen = {event.pod.name: event for event in events if event.pod and event.pod.namespace == rig.namespace}
    assert seen.keys() == {"crashed", "killed"}
    failure = seen["crashed"].pod.failures[0]
    assert (failure.name, failure.exit_code, failure.message) == ("main", 3, "NCCL")
    assert failure.finished_at.isoformat() == "2026-11-21T07:00:00+00:00"
    assert seen["killed"].pod.failures == ()
    failed = rig.cluster.list_pods(namespace=rig.namespace, failed=True)
    assert [pod.name for pod in failed] == ["crashed"]


def test_a_failure_without_a_time_gets_the_time_of_the_next_event(rig, node):
    end = {"reason": "Error", "exitCode": 3, "finishedAt": None}
    at, again = "2026-11-21T07:00:00Z", {"running": {"startedAt": "2026-11-21T07:05:00Z"}}
    unready = {"type": "ContainersReady", "status": "False", "lastTransitionTime": at}
    rig.pod("over", node=node, status={"containerStatuses": [_container(end)], "conditions": [unready]})
    restarted = {**_container(end), "state": again, "lastState": {"terminated": end}}
    rig.pod("again", node=node, status={"containerStatuses": [restarted], "conditions": [unready]})
    rig.pod("unknown", node=node, status={"containerStatuses": [_container(end)]})
    found = {pod.name: pod for pod in rig.cluster.list_pods(namespace=rig.namespace, failed=True)}
    times = {name: [it.finished_at for it in (*pod.failures, *pod.past_failures)] for name, pod in found.items()}
    assert times == {
        "over": [datetime(2026, 11, 21, 7, tzinfo=UTC)],
        "again": [datetime(2026, 11, 21, 7, 5, tzinfo=UTC)],
        "unknown": [None],
    }


def test_a_watch_from_a_version_returns_only_later_events(rig, node):
    rig.pod("before", node=node)
    version = rig.cluster.pods_version()
    rig.pod("after", node=node)
    events = rig.cluster.watch_pods(version, timeout=max(1, rig.patience / 2) if rig.patience else 0)
    assert {event.pod.name for event in events if event.pod and event.pod.namespace == rig.namespace} == {"after"}


def _container(end):
    more = {"image": "busybox", "imageID": "", "ready": False, "restartCount": 0}
    return {"name": "main", "state": {"terminated": end}, **more}


# logs

AT = datetime(2026, 11, 21, 8, tzinfo=UTC)


def test_a_log_is_read_from_a_second_on_with_the_times_of_its_lines(rig, node):
    rig.pod("train", node=node)
    for second, line in enumerate(("first", "second", "third")):
        rig.write_log("train", line, at=AT + timedelta(seconds=second, milliseconds=700))
    read = functools.partial(rig.unrestricted().pod_log, rig.namespace, "train", container="main", most=1_000)
    log = read(since=AT + timedelta(seconds=1, milliseconds=900)).decode()
    lines = [line.partition(" ") for line in log.splitlines()]
    assert [text for _, _, text in lines] == ["second", "third"]
    assert datetime.fromisoformat(lines[0][0]) == AT + timedelta(seconds=1, milliseconds=700)
    assert read(since=AT, most=20) == b"2026-11-21T08:00:00."
    assert read(since=AT, container="other") == read(since=AT, previous=True) == b""
    with pytest.raises(port.NotFound):
        rig.unrestricted().pod_log(rig.namespace, "none", container="main", since=AT, most=10)


def test_a_pod_names_its_containers(rig, node):
    rig.pod("train", node=node)
    assert rig.cluster.list_pods(node=node)[0].containers == ("main",)


# evict and delete


def test_an_evicted_pod_leaves_and_then_is_gone(rig, node):
    uid = rig.pod("train", node=node)["metadata"]["uid"]
    assert rig.cluster.evict(rig.namespace, "train", uid=uid) == port.Evicted()
    assert [pod.deleting for pod in rig.cluster.list_pods(node=node)] == [True]
    assert rig.cluster.evict(rig.namespace, "train", uid=uid) == port.Evicted()
    rig.remove("Pod", "train", namespace=rig.namespace)
    assert rig.cluster.evict(rig.namespace, "train", uid=uid) == port.Gone()


def test_a_pod_of_that_name_with_another_uid_is_left_alone(rig, node):
    old = rig.pod("train", node=node)["metadata"]["uid"]
    rig.remove("Pod", "train", namespace=rig.namespace)
    rig.pod("train", node=node)
    assert rig.cluster.evict(rig.namespace, "train", uid=old) == port.Gone()
    assert rig.cluster.delete_pod(rig.namespace, "train", uid=old) == port.Gone()
    assert [pod.deleting for pod in rig.cluster.list_pods(node=node)] == [False]


def test_a_blocking_budget_is_named(rig, node):
    uid = rig.pod("train", node=node, labels={"job": "x"})["metadata"]["uid"]
    rig.budget("keep-one", match={"job": "x"}, min_available=1)
    rig.settle()
    for dry_run in (True, False):
        answer = rig.cluster.evict(rig.namespace, "train", uid=uid, dry_run=dry_run)
        assert isinstance(answer, port.Blocked)
        assert answer.budgets == ("keep-one",)
        assert "keep-one" in answer.reason
    assert [pod.deleting for pod in rig.cluster.list_pods(node=node)] == [False]


def test_a_budget_does_not_speak_for_a_pod_that_is_gone(rig, node):
    """The server asks the budget before it looks at the uid; another pod of that name is none of our business."""
    old = rig.pod("train", node=node, labels={"job": "x"})["metadata"]["uid"]
    rig.remove("Pod", "train", namespace=rig.namespace)
    rig.pod("train", node=node, labels={"job": "x"})
    rig.budget("keep-one", match={"job": "x"}, min_available=1)
    rig.settle()
    assert rig.cluster.evict(rig.namespace, "train", uid=old) == port.Gone()
    assert [pod.deleting for pod in rig.cluster.list_pods(node=node)] == [False]


def test_a_budget_with_room_lets_one_go(rig, node):
    uids = [rig.pod(f"train-{i}", node=node, labels={"job": "x"})["metadata"]["uid"] for i in range(2)]
    rig.budget("keep-one", match={"job": "x"}, min_available=1)
    rig.settle()
    assert rig.cluster.evict(rig.namespace, "train-0", uid=uids[0]) == port.Evicted()
    assert isinstance(rig.cluster.evict(rig.namespace, "train-1", uid=uids[1]), port.Blocked)


def test_two_budgets_block_too(rig, node):
    uid = rig.pod("train", node=node, labels={"job": "x"})["metadata"]["uid"]
    rig.budget("one", match={"job": "x"}, min_available=0)
    rig.budget("two", match={"job": "x"}, min_available=0)
    rig.settle()
    answer = rig.cluster.evict(rig.namespace, "train", uid=uid)
    assert isinstance(answer, port.Blocked)
    assert "more than one PodDisruptionBudget" in answer.reason


def test_a_finished_pod_needs_no_budget(rig, node):
    uid = rig.pod("done", node=node, labels={"job": "x"}, phase="Failed")["metadata"]["uid"]
    rig.budget("keep-one", match={"job": "x"}, min_available=1)
    rig.settle()
    assert rig.cluster.evict(rig.namespace, "done", uid=uid) == port.Evicted()


def test_a_dry_run_changes_nothing(rig, node):
    uid = rig.pod("train", node=node)["metadata"]["uid"]
    assert rig.cluster.evict(rig.namespace, "train", uid=uid, dry_run=True) == port.Evicted()
    assert [pod.deleting for pod in rig.cluster.list_pods(node=node)] == [False]


def test_deletion_asks_no_budget(rig, node):
    uid = rig.pod("train", node=node, labels={"job": "x"})["metadata"]["uid"]
    rig.budget("keep-one", match={"job": "x"}, min_available=1)
    rig.settle()
    assert rig.cluster.delete_pod(rig.namespace, "train", uid=uid, grace_seconds=7) == port.Evicted()
    assert rig.read("Pod", "train", namespace=rig.namespace)["metadata"]["deletionGracePeriodSeconds"] == 7
    rig.remove("Pod", "train", namespace=rig.namespace)
    assert rig.cluster.delete_pod(rig.namespace, "train", uid=uid) == port.Gone()


def test_budgets_name_the_pods_they_protect(rig, node):
    rig.pod("train", node=node, labels={"job": "x"})
    rig.pod("other", node=node, labels={"job": "y"})
    rig.budget("keep-none", match={"job": "x"}, min_available=0)
    rig.settle()
    (budget,) = rig.cluster.budgets(rig.namespace)
    assert (budget.name, budget.namespace, budget.disruptions_allowed) == ("keep-none", rig.namespace, 1)
    covered = [pod.name for pod in rig.cluster.list_pods(node=node) if budget.covers(pod)]
    assert covered == ["train"]
    assert budget in rig.cluster.budgets()


def test_a_budget_with_an_empty_selector_protects_what_the_server_reports(rig, node):
    """``{}`` selects every pod of the namespace in policy/v1, and none in policy/v1beta1."""
    uid = rig.pod("train", node=node)["metadata"]["uid"]
    rig.budget("all", match={}, min_available=1)
    rig.settle()
    (budget,) = rig.cluster.budgets(rig.namespace)
    (pod,) = rig.cluster.list_pods(namespace=rig.namespace)
    assert budget.covers(pod) is (rig.policy == "policy/v1")
    answer = rig.cluster.evict(rig.namespace, "train", uid=uid, dry_run=True)
    assert isinstance(answer, port.Blocked if budget.covers(pod) else port.Evicted)
