"""The store by itself: versions, order of changes, deletion, selectors, patches, owners."""

from datetime import UTC, datetime, timedelta

import pytest

from simulator.kubeapi import budgets, errors, garbage, patches, resources, selectors, store, strategic_merge
from simulator.kubeapi.tables import column, table
from tests.simulator.api_server import budget, node, pod

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@pytest.fixture
def objects():
    return store.Store(now=lambda: NOW)


def refusal(call):
    with pytest.raises(errors.ApiError) as caught:
        call()
    return caught.value.code, caught.value.reason


def test_versions_rise_over_all_kinds_and_a_write_that_changes_nothing_makes_none(objects):
    first = objects.create("Node", node("a"))
    second = objects.create("Pod", pod("p"))
    same = objects.patch("Node", "", "a", {"metadata": {"labels": {"kubernetes.io/hostname": "a"}}})
    assert int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1
    assert same is first
    assert objects.version == int(second["metadata"]["resourceVersion"])


def test_a_version_or_a_uid_that_is_not_the_current_one_is_a_conflict(objects):
    old = objects.create("Node", node("a"))
    objects.patch("Node", "", "a", {"spec": {"unschedulable": True}})
    assert refusal(lambda: objects.update("Node", {**old, "spec": {}})) == (409, "Conflict")
    assert refusal(lambda: objects.patch("Node", "", "a", {"metadata": {"uid": "other"}})) == (409, "Conflict")
    assert refusal(lambda: objects.delete("Node", "", "a", uid="other")) == (409, "Conflict")
    assert refusal(lambda: objects.create("Node", node("a"))) == (409, "AlreadyExists")
    assert refusal(lambda: objects.get("Node", "", "b")) == (404, "NotFound")


def test_changes_reach_every_subscriber_in_their_order_even_when_one_writes(objects):
    seen = []

    def writes(change):
        if change.kind == "ADDED":
            objects.patch("Node", "", "a", {"spec": {"unschedulable": True}})

    objects.subscribe(writes)
    stop = objects.subscribe(lambda change: seen.append((change.kind, change.entry.version)))
    objects.create("Node", node("a"))
    assert [kind for kind, _ in seen] == ["ADDED", "MODIFIED"]
    assert seen == sorted(seen, key=lambda item: item[1])
    stop()
    objects.delete("Node", "", "a")
    assert len(seen) == 2


def test_a_running_pod_is_marked_and_deleted_by_its_kubelet(objects):
    objects.create("Pod", pod("p", grace=30))
    marked = objects.delete("Pod", "default", "p")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["deletionTimestamp"] == store.timestamp(NOW + timedelta(seconds=30))
    assert objects.delete("Pod", "default", "p", grace=60) is marked, "a deletion under way is not put off"
    assert objects.delete("Pod", "default", "p", grace=5)["metadata"]["deletionGracePeriodSeconds"] == 5
    objects.delete("Pod", "default", "p", grace=0)
    assert objects.find("Pod", "default", "p") is None


@pytest.mark.parametrize("change", [{"on": ""}, {"phase": "Succeeded"}, {"phase": "Failed"}])
def test_a_pod_that_runs_nowhere_goes_at_once(objects, change):
    objects.create("Pod", pod("p", **change))
    objects.delete("Pod", "default", "p")
    assert objects.find("Pod", "default", "p") is None


def test_finalizers_hold_an_object_until_the_last_is_off(objects):
    objects.create("Node", {"metadata": {"name": "a", "finalizers": ["x/y"]}})
    held = objects.delete("Node", "", "a")
    assert held["metadata"]["deletionTimestamp"]
    objects.patch("Node", "", "a", {"metadata": {"finalizers": None}})
    assert objects.find("Node", "", "a") is None


def test_owned_objects_are_deleted_with_their_last_owner(objects):
    garbage.Collector(objects)
    job = objects.create("Job", {"metadata": {"name": "j", "namespace": "default"}, "spec": {}})
    other = objects.create("Job", {"metadata": {"name": "k", "namespace": "default"}, "spec": {}})
    objects.create("Pod", pod("mine", owner=job, phase="Succeeded"))
    shared = pod("shared", owner=job, phase="Succeeded")
    shared["metadata"]["ownerReferences"] += pod("x", owner=other)["metadata"]["ownerReferences"]
    objects.create("Pod", shared)
    objects.create("Pod", pod("free", phase="Succeeded"))
    objects.delete("Job", "default", "j")
    assert [item["metadata"]["name"] for item in objects.list("Pod")] == ["free", "shared"]


def test_pods_are_found_by_node_also_after_they_move(objects):
    objects.create("Pod", pod("p", on=""))
    objects.create("Pod", pod("q", on="b"))
    objects.patch("Pod", "default", "p", {"spec": {"nodeName": "a"}})
    assert [item["metadata"]["name"] for item in objects.list("Pod", fields="spec.nodeName=a")] == ["p"]
    assert objects.list("Pod", fields="spec.nodeName=") == []
    objects.delete("Pod", "default", "p", grace=0)
    assert objects.list("Pod", fields="spec.nodeName=a") == []


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "abc"),
        ("tier=gpu", "a"),
        ("tier==gpu", "a"),
        ("tier!=gpu", "bc"),
        ("tier in (gpu, cpu)", "ab"),
        ("tier notin (gpu)", "bc"),
        ("tier", "ab"),
        ("!tier", "c"),
        ("tier,zone=1", "b"),
        ("kubernetes.io/hostname=c,tier notin (gpu,cpu)", "c"),
        ("zone=", ""),
    ],
)
def test_label_selectors(objects, selector, names):
    objects.create("Node", node("a", tier="gpu"))
    objects.create("Node", node("b", tier="cpu", zone="1"))
    objects.create("Node", node("c"))
    assert "".join(item["metadata"]["name"] for item in objects.list("Node", labels=selector)) == names


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "=x", "a in (x", "!!a"])
def test_an_invalid_selector_is_refused(selector):
    with pytest.raises(errors.ApiError, match="unable to parse"):
        selectors.parse_labels(selector)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.nodeName=a", ["p"]),
        ("spec.nodeName!=a", ["q", "r"]),
        ("status.phase=Running,spec.nodeName=b", ["q"]),
        ("metadata.name=r", ["r"]),
        ("metadata.namespace!=default", []),
    ],
)
def test_field_selectors(objects, selector, names):
    objects.create("Pod", pod("p", on="a"))
    objects.create("Pod", pod("q", on="b"))
    objects.create("Pod", pod("r", on="b", phase="Succeeded"))
    assert [item["metadata"]["name"] for item in objects.list("Pod", fields=selector)] == names


def test_a_field_that_cannot_be_selected_by_is_refused(objects):
    with pytest.raises(errors.ApiError, match=r'not supported: "spec\.containers"'):
        objects.list("Pod", fields="spec.containers=x")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *[(0, "0s"), (119, "119s"), (120, "2m"), (310, "5m10s"), (600, "10m"), (3 * 3600, "3h"), (11_000, "3h3m")],
        *[(47 * 3600, "47h"), (52 * 3600, "2d4h"), (12 * 86400, "12d"), (800 * 86400, "2y70d"), (-5, "<invalid>")],
    ],
)
def test_ages_are_shortened_as_kubectl_shortens_them(seconds, shown):
    assert column.duration(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("status", "deleting", "cells"),
    [
        ({"ready": True, "state": {"running": {}}, "restartCount": 0}, False, ["1/1", "Running", "0"]),
        (
            {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            False,
            ["0/1", "CrashLoopBackOff", "0"],
        ),
        ({"ready": False, "state": {"terminated": {"exitCode": 3}}}, False, ["0/1", "ExitCode:3", "0"]),
        ({"ready": True, "state": {"running": {}}}, True, ["1/1", "Terminating", "0"]),
    ],
)
def test_the_status_column_of_a_pod(status, deleting, cells):
    obj = pod("p")
    obj["status"]["containerStatuses"] = [{"name": "main", **status}]
    if deleting:
        obj["metadata"]["deletionTimestamp"] = store.timestamp(NOW)
    assert table.cells(resources.PODS, obj, now=NOW)[1:4] == cells


def test_json_patch_leaves_the_original_alone():
    before = {"spec": {"taints": [{"key": "a"}, {"key": "b"}]}, "metadata": {"labels": {"x/y": "1"}}}
    after = patches.json_patch(
        before,
        [
            {"op": "test", "path": "/spec/taints/0/key", "value": "a"},
            {"op": "remove", "path": "/spec/taints/0"},
            {"op": "add", "path": "/spec/taints/-", "value": {"key": "c"}},
            {"op": "replace", "path": "/metadata/labels/x~1y", "value": "2"},
            {"op": "copy", "from": "/spec/taints/0", "path": "/spec/first"},
            {"op": "move", "from": "/metadata/labels", "path": "/labels"},
        ],
    )
    assert after == {
        "spec": {"taints": [{"key": "b"}, {"key": "c"}], "first": {"key": "b"}},
        "metadata": {},
        "labels": {"x/y": "2"},
    }
    assert before == {"spec": {"taints": [{"key": "a"}, {"key": "b"}]}, "metadata": {"labels": {"x/y": "1"}}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/list/5", "value": 1},
        {"op": "wish", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_a_json_patch_that_does_not_apply_is_422(operation):
    assert refusal(lambda: patches.json_patch({"a": 1, "list": []}, [operation])) == (422, "Invalid")


def test_strategic_merge_knows_which_lists_merge():
    before = {
        "spec": {
            "taints": [{"key": "a", "effect": "NoSchedule"}],
            "containers": [
                {"name": "x", "image": "1", "env": [{"name": "A", "value": "1"}]},
                {"name": "y", "image": "1"},
            ],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]},
        "metadata": {"finalizers": ["one"], "labels": {"keep": "1", "drop": "1"}},
    }
    after = strategic_merge.merge(
        before,
        {
            "spec": {
                "taints": [{"key": "b", "effect": "NoExecute"}],
                "containers": [
                    {"name": "x", "env": [{"name": "B", "value": "2"}]},
                    {"name": "y", "$patch": "delete"},
                    {"name": "z", "image": "3"},
                ],
                "$setElementOrder/containers": [{"name": "z"}, {"name": "x"}],
            },
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
            "metadata": {"finalizers": ["two"], "labels": {"drop": None}},
        },
        kind="Pod",
    )
    assert after["spec"]["taints"] == [{"key": "b", "effect": "NoExecute"}], "taints are atomic: the list is replaced"
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert after["spec"]["containers"] == [{"name": "z", "image": "3"}, {"name": "x", "image": "1", "env": env}]
    assert after["status"]["conditions"] == [{"type": "Ready", "status": "False"}, {"type": "Disk", "status": "False"}]
    assert after["metadata"] == {"finalizers": ["one", "two"], "labels": {"keep": "1"}}


def test_strategic_directives():
    before = {"spec": {"a": 1, "b": 2}, "metadata": {"finalizers": ["one", "two"]}}
    assert strategic_merge.merge(before, {"spec": {"$patch": "replace", "c": 3}}, kind="Pod")["spec"] == {"c": 3}
    assert strategic_merge.merge(before, {"spec": {"$patch": "delete"}}, kind="Pod")["spec"] == {}
    assert strategic_merge.merge(before, {"spec": {"$retainKeys": ["b", "c"], "c": 3}}, kind="Pod")["spec"] == {
        "b": 2,
        "c": 3,
    }
    gone = strategic_merge.merge(before, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["one"]}}, kind="Pod")
    assert gone["metadata"]["finalizers"] == ["two"]
    with pytest.raises(errors.ApiError, match="merge key"):
        strategic_merge.merge({}, {"spec": {"containers": [{"image": "x"}]}}, kind="Pod")


@pytest.mark.parametrize(
    ("spec", "unready", "allowed"),
    [
        ({"minAvailable": 3}, 0, 1),
        ({"minAvailable": 3}, 1, 0),
        ({"minAvailable": "50%"}, 0, 2),
        ({"minAvailable": "51%"}, 0, 1),
        ({"maxUnavailable": 1}, 0, 1),
        ({"maxUnavailable": 1}, 1, 0),
        ({"maxUnavailable": "25%"}, 0, 1),
        ({"maxUnavailable": "26%"}, 0, 2),
        ({"maxUnavailable": 0}, 0, 0),
        ({}, 0, 1),
    ],
)
def test_the_allowed_disruptions_of_a_budget(objects, spec, unready, allowed):
    guard = budgets.Budgets(objects)
    objects.create("PodDisruptionBudget", budget("b", {"app": "x"}, **spec))
    for number in range(4):
        objects.create("Pod", pod(f"p{number}", labels={"app": "x"}, ready=number >= unready))
    guard.settle()
    status = objects.get("PodDisruptionBudget", "default", "b")["status"]
    assert (status["expectedPods"], status["currentHealthy"]) == (4, 4 - unready)
    assert status["disruptionsAllowed"] == allowed


def test_a_budget_follows_pods_that_leave_and_labels_that_change(objects):
    guard = budgets.Budgets(objects)
    objects.create("PodDisruptionBudget", budget("b", {"app": "x"}, minAvailable=1))
    objects.create("Pod", pod("p", labels={"app": "x"}))
    objects.create("Pod", pod("q", labels={"app": "x"}))

    def allowed():
        guard.settle()
        return objects.get("PodDisruptionBudget", "default", "b")["status"]["disruptionsAllowed"]

    assert allowed() == 1
    objects.delete("Pod", "default", "p")
    assert allowed() == 0, "a pod on its way out is not healthy"
    objects.create("Pod", pod("r", labels={"app": "x"}))
    assert allowed() == 1
    objects.patch("Pod", "default", "r", {"metadata": {"labels": {"app": "y"}}})
    assert allowed() == 0
