"""The API over HTTP, as the official client sees it: lists, watches, writes, refusals."""

import contextlib
import http.client
import json
import threading
import time
from concurrent import futures
from datetime import UTC, datetime, timedelta

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from simulator.kubeapi import access
from tests import waiting
from tests.simulator.api_server import ADMIN_TOKEN, READER_TOKEN, budget, node, pod, serving


@pytest.fixture(scope="module")
def shared():
    """One server for tests that only read, or leave nothing behind."""
    with serving() as running:
        yield running


@pytest.fixture
def running():
    with serving() as fresh:
        yield fresh


@pytest.fixture
def core(running):
    with running.client() as api:
        yield client.CoreV1Api(api)


def refused(call, *arguments, **options):
    """The HTTP status and the Status object of a call that is refused."""
    with pytest.raises(ApiException) as caught:
        call(*arguments, **options)
    return caught.value.status, json.loads(caught.value.body), caught.value.headers


def raw(
    running,
    method,
    path,
    body=None,
    *,
    token=ADMIN_TOKEN,
    accept="application/json",
    media="application/json",
    timeout=waiting.HANG_SECONDS,
):
    """One request by hand: status, headers, decoded body (text where it is no JSON)."""
    connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=timeout)
    headers = {"Accept": accept, "Content-Type": media}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
        return response.status, response.headers, json.loads(text) if text.startswith(("{", "[")) else text
    finally:
        connection.close()


# Reading


def test_lists_come_in_pages_that_show_one_moment(running, core):
    for number in range(7):
        running.put("Node", node(f"n{number}"))
    first = core.list_node(limit=3)
    running.do(lambda: running.store.delete("Node", "", "n4"))
    running.put("Node", node("n31"))
    second = core.list_node(limit=3, _continue=first.metadata._continue)
    third = core.list_node(limit=3, _continue=second.metadata._continue)
    names = [item.metadata.name for page in (first, second, third) for item in page.items]
    assert names == ["n0", "n1", "n2", "n3", "n4", "n5", "n6"]
    assert first.metadata.remaining_item_count == 4
    assert {page.metadata.resource_version for page in (first, second, third)} == {first.metadata.resource_version}
    assert third.metadata._continue is None
    assert [item.metadata.name for item in core.list_node().items] == ["n0", "n1", "n2", "n3", "n31", "n5", "n6"]


def test_a_continue_token_is_expired_after_a_compaction(running, core):
    for number in range(3):
        running.put("Node", node(f"n{number}"))
    page = core.list_node(limit=1)
    running.do(running.api.compact)
    status, body, _ = refused(core.list_node, limit=1, _continue=page.metadata._continue)
    assert (status, body["reason"], body["code"]) == (410, "Expired", 410)
    status, body, _ = refused(core.list_node, limit=1, _continue="nonsense")
    assert (status, body["reason"]) == (400, "BadRequest")


def test_list_items_of_built_in_kinds_carry_no_kind_and_custom_ones_do(running):
    running.put("Node", node("a"))
    running.do(
        lambda: running.store.create("PyTorchJob", {"metadata": {"name": "t", "namespace": "default"}, "spec": {}})
    )
    _, _, nodes = raw(running, "GET", "/api/v1/nodes")
    _, _, jobs = raw(running, "GET", "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs")
    assert (nodes["kind"], nodes["apiVersion"], "kind" in nodes["items"][0]) == ("NodeList", "v1", False)
    assert (jobs["kind"], jobs["items"][0]["kind"], jobs["items"][0]["apiVersion"]) == (
        "PyTorchJobList",
        "PyTorchJob",
        "kubeflow.org/v1",
    )
    _, _, one = raw(running, "GET", "/api/v1/nodes/a")
    assert (one["kind"], one["apiVersion"], one["metadata"]["name"]) == ("Node", "v1", "a")


def test_pods_are_listed_by_node_over_all_namespaces(running, core):
    running.put("Namespace", {"metadata": {"name": "team"}})
    for name, namespace, on in (("a", "default", "n1"), ("b", "team", "n1"), ("c", "team", "n2")):
        running.put("Pod", pod(name, namespace=namespace, on=on))
    found = core.list_pod_for_all_namespaces(field_selector="spec.nodeName=n1,status.phase!=Failed")
    assert [(item.metadata.namespace, item.metadata.name) for item in found.items] == [("default", "a"), ("team", "b")]
    assert [item.metadata.name for item in core.list_namespaced_pod("team").items] == ["b", "c"]


def test_an_event_is_one_object_in_both_groups(running, core):
    event = client.CoreV1Event(
        metadata=client.V1ObjectMeta(name="e1"),
        involved_object=client.V1ObjectReference(kind="Node", name="a", namespace="default"),
        reason="XidError",
        message="GPU Xid error",
        type="Warning",
        count=2,
        source=client.V1EventSource(component="test"),
    )
    core.create_namespaced_event("default", event)
    _, _, seen = raw(running, "GET", "/apis/events.k8s.io/v1/namespaces/default/events/e1")
    assert (seen["apiVersion"], seen["note"], seen["deprecatedCount"]) == ("events.k8s.io/v1", "GPU Xid error", 2)
    assert (seen["regarding"]["name"], seen["eventTime"]) == ("a", None)
    found = core.list_event_for_all_namespaces(
        field_selector="involvedObject.kind=Node,involvedObject.name=a,type!=Normal"
    )
    assert [item.metadata.name for item in found.items] == ["e1"]


@pytest.mark.parametrize(
    ("namespace", "about", "accepted"),
    [
        ("default", "", True),
        ("team", "", False),
        ("team", "team", True),
        ("team", "default", False),
        ("default", "default", True),
    ],
)
def test_the_namespace_rule_of_events(running, core, namespace, about, accepted):
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="team")))
    body = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Node", "name": "a", "namespace": about},
        "reason": "XidError",
    }
    status, _, answer = raw(running, "POST", f"/api/v1/namespaces/{namespace}/events", body)
    assert status == (201 if accepted else 422)
    if not accepted:
        assert answer["message"].endswith(
            f'involvedObject.namespace: Invalid value: "{about}": does not match event.namespace'
        )


def test_events_that_are_not_updated_expire_after_an_hour(running, core):
    running.put("Event", {"metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"kind": "Node"}})
    running.do(running.api.expire_events)
    assert len(core.list_namespaced_event("default").items) == 1
    running.skipped = timedelta(hours=1, seconds=1)
    running.do(running.api.expire_events)
    assert core.list_namespaced_event("default").items == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/nodes/none", 404),
        ("/api/v1/wishes", 404),
        ("/apis/apps/v2/deployments", 404),
        ("/api/v1/nodes/none/eviction", 404),
        ("/api/v1/nodes?labelSelector=a%20in%20b", 400),
        ("/api/v1/nodes?fieldSelector=spec.taints%3Dx", 400),
        ("/api/v1/nodes?resourceVersion=999999", 504),
        ("/api/v1/nodes?limit=x", 400),
        ("/nothing", 404),
        ("/healthz", 200),
        ("/version", 200),
        ("/api", 200),
        ("/apis", 200),
        ("/apis/policy", 200),
        ("/apis/policy/v1beta1", 200),
        ("/apis/nothing", 404),
    ],
)
def test_paths(shared, path, status):
    assert raw(shared, "GET", path)[0] == status


def test_refusals_are_phrased_as_the_api_server_phrases_them(shared):
    assert raw(shared, "GET", "/api/v1/nodes/none")[2] == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'nodes "none" not found',
        "reason": "NotFound",
        "details": {"name": "none", "kind": "nodes"},
        "code": 404,
    }
    _, _, budgets = raw(shared, "GET", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/none")
    assert budgets["message"] == 'poddisruptionbudgets.policy "none" not found'
    assert budgets["details"] == {"name": "none", "group": "policy", "kind": "poddisruptionbudgets"}
    status, _, body = raw(shared, "PUT", "/api/v1/nodes", {})
    assert (status, body["reason"]) == (405, "MethodNotAllowed")
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    status, _, body = raw(shared, "POST", "/api/v1/namespaces/nowhere/pods", body)
    assert (status, body["message"]) == (404, 'namespaces "nowhere" not found')


def test_tables_and_metadata_are_returned_on_request(running):
    running.put("Node", node("a"))
    running.do(lambda: running.store.patch("Node", "", "a", {"spec": {"unschedulable": True}}))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    _, _, table = raw(running, "GET", "/api/v1/nodes", accept=accept)
    assert [column["name"] for column in table["columnDefinitions"]][:5] == [
        "Name",
        "Status",
        "Roles",
        "Age",
        "Version",
    ]
    assert table["rows"][0]["cells"][:3] == ["a", "Ready,SchedulingDisabled", "gpu"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    _, _, partial = raw(running, "GET", "/api/v1/nodes", accept=accept)
    assert partial["kind"] == "PartialObjectMetadataList"
    assert set(partial["items"][0]) == {"kind", "apiVersion", "metadata"}
    assert raw(running, "GET", "/api/v1/nodes", accept="application/vnd.kubernetes.protobuf")[0] == 406


# Watching


def test_a_watch_returns_events_after_a_list(running, core):
    running.put("Node", node("a"))
    version = core.list_node().metadata.resource_version
    running.do(lambda: running.store.patch("Node", "", "a", {"spec": {"unschedulable": True}}))
    running.put("Node", node("b"))
    running.do(lambda: running.store.delete("Node", "", "a"))
    events = list(watch.Watch().stream(core.list_node, resource_version=version, timeout_seconds=1))
    assert [(event["type"], event["object"].metadata.name) for event in events] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]
    assert events[0]["object"].spec.unschedulable is True
    assert int(events[2]["object"].metadata.resource_version) == running.store.version


def test_a_watch_delivers_at_once(running, core):
    version = core.list_node().metadata.resource_version
    arrived = []
    reader = watch.Watch()

    def follow():
        for event in reader.stream(core.list_node, resource_version=version, timeout_seconds=240):
            arrived.append(event["object"].metadata.name)
            reader.stop()

    thread = threading.Thread(target=follow)
    thread.start()
    waiting.until(lambda: running.api.calls.total(verb="watch"), "the watch to begin")
    running.put("Node", node("a"))
    thread.join(waiting.HANG_SECONDS)
    assert arrived == ["a"], "long before the watch's time is over"


def test_a_selection_makes_additions_and_deletions_of_changes(running, core):
    running.put("Node", node("a"))
    version = core.list_node().metadata.resource_version
    for value in ("yes", "no", "yes"):
        running.do(lambda value=value: running.store.patch("Node", "", "a", {"metadata": {"labels": {"x": value}}}))
    running.put("Node", node("b"))
    stream = watch.Watch().stream(core.list_node, label_selector="x=yes", resource_version=version, timeout_seconds=1)
    assert [event["type"] for event in stream] == ["ADDED", "DELETED", "ADDED"]


def test_a_watch_without_a_version_begins_with_the_current_objects(running):
    running.put("Node", node("a"))
    _, _, lines = raw(running, "GET", "/api/v1/nodes?watch=1&timeoutSeconds=1&labelSelector=!x")
    assert (lines["type"], lines["object"]["metadata"]["name"]) == ("ADDED", "a")


def test_bookmarks_carry_the_version_on():
    with serving(bookmark_every=0.2) as running:
        version = running.store.version
        running.put("Pod", pod("p"))
        path = f"/api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={version}"
        connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=10)
        connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        lines = [json.loads(line) for line in connection.getresponse().read().splitlines()]
        connection.close()
        assert {line["type"] for line in lines} == {"BOOKMARK"}
        assert lines[0]["object"]["kind"] == "Node"
        assert lines[0]["object"]["metadata"]["resourceVersion"] == str(running.store.version)


def test_a_watch_from_before_the_history_is_410():
    with serving(history=4) as running, running.client() as api:
        core = client.CoreV1Api(api)
        version = core.list_node().metadata.resource_version
        for number in range(6):
            running.put("Node", node(f"n{number}"))
        _, _, line = raw(running, "GET", f"/api/v1/nodes?watch=true&timeoutSeconds=1&resourceVersion={version}")
        assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")
        with pytest.raises(ApiException) as caught:
            list(watch.Watch().stream(core.list_node, resource_version=version, timeout_seconds=1))
        assert caught.value.status == 410


def test_watches_can_be_cut(running, core):
    version = core.list_node().metadata.resource_version
    connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=10)
    path = f"/api/v1/nodes?watch=true&resourceVersion={version}"
    connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    response = connection.getresponse()
    assert running.do(running.api.cut_watches) == 1
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        response.read()
    connection.close()


# Writing


def test_every_patch_type_on_a_node(running, core):
    running.put("Node", node("a"))
    path = "/api/v1/nodes/a"
    taint = {"key": "x", "value": "1", "effect": "NoSchedule"}
    raw(running, "PATCH", path, {"spec": {"taints": [taint]}}, media="application/merge-patch+json")
    other = {"key": "y", "effect": "NoExecute"}
    media = "application/strategic-merge-patch+json"
    _, _, after = raw(running, "PATCH", path, {"spec": {"taints": [other]}}, media=media)
    assert after["spec"]["taints"] == [other], "a strategic patch replaces taints too"
    operations = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": after["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/spec/taints/-", "value": taint},
    ]
    _, _, after = raw(running, "PATCH", path, operations, media="application/json-patch+json")
    assert after["spec"]["taints"] == [other, taint]
    status, _, body = raw(running, "PATCH", path, operations, media="application/json-patch+json")
    assert (status, body["reason"]) == (422, "Invalid")
    status, _, body = raw(running, "PATCH", path, {}, media="application/apply-patch+yaml")
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")
    custom = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/t"
    raw(running, "POST", custom.removesuffix("/t"), {"metadata": {"name": "t"}})
    assert raw(running, "PATCH", custom, {}, media=media)[0] == 415


def test_an_old_version_in_a_patch_or_a_put_is_409(running, core):
    running.put("Node", node("a"))
    old = core.read_node("a")
    core.patch_node("a", {"spec": {"unschedulable": True}})
    stale = {"metadata": {"resourceVersion": old.metadata.resource_version, "labels": {"x": "y"}}}
    status, body, _ = refused(core.patch_node, "a", stale)
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"] == (
        'Operation cannot be fulfilled on nodes "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert refused(core.replace_node, "a", old)[0] == 409
    fresh = core.read_node("a")
    fresh.metadata.labels["x"] = "y"
    assert core.replace_node("a", fresh).metadata.labels["x"] == "y"


def test_spec_and_status_are_written_apart(running, core):
    running.put("Node", node("a"))
    core.patch_node("a", {"spec": {"unschedulable": True}, "status": {"phase": "Lost"}})
    assert core.read_node("a").status.phase is None
    condition = {"type": "GpuHealthy", "status": "False", "reason": "Xid79"}
    core.patch_node_status("a", {"spec": {"unschedulable": False}, "status": {"conditions": [condition]}})
    after = core.read_node("a")
    assert after.spec.unschedulable is True
    assert {item.type for item in after.status.conditions} == {"Ready", "GpuHealthy"}


def test_a_patch_without_a_change_makes_no_version(running, core):
    running.put("Node", node("a"))
    first = core.patch_node("a", {"spec": {"unschedulable": True}})
    again = core.patch_node("a", {"spec": {"unschedulable": True}})
    assert again.metadata.resource_version == first.metadata.resource_version


def test_dry_runs_change_nothing(running, core):
    running.put("Node", node("a"))
    running.put("Pod", pod("p"))
    version = running.store.version
    assert core.patch_node("a", {"spec": {"unschedulable": True}}, dry_run="All").spec.unschedulable is True
    core.create_node(client.V1Node(metadata=client.V1ObjectMeta(name="b")), dry_run="All")
    core.delete_node("a", dry_run="All")
    core.delete_namespaced_pod("p", "default", dry_run="All")
    eviction = client.V1Eviction(
        metadata=client.V1ObjectMeta(name="p"), delete_options=client.V1DeleteOptions(dry_run=["All"])
    )
    core.create_namespaced_pod_eviction("p", "default", eviction)
    assert running.store.version == version
    assert running.api.calls.writes() == 0
    assert refused(core.patch_node, "a", {}, dry_run="Some")[0] == 400


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"metadata": {"labels": {"x": "not good"}}}, "metadata.labels: Invalid value"),
        ({"metadata": {"labels": {"x" * 64: "1"}}}, "name part must be no more than 63 characters"),
        ({"spec": {"taints": [{"key": "x", "effect": "Never"}]}}, 'spec.taints[0].effect: Unsupported value: "Never"'),
        ({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}] * 2}}, "spec.taints[1]: Duplicate value"),
        ({"metadata": {"annotations": {"x": "y" * 262144}}}, "Too long"),
    ],
)
def test_an_invalid_node_is_422_with_the_field(running, core, patch, message):
    running.put("Node", node("a"))
    status, body, _ = refused(core.patch_node, "a", patch)
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"].startswith('Node "a" is invalid: ')
    assert message in body["message"]
    assert len(body["details"]["causes"]) == 1


@pytest.mark.parametrize(("value", "found"), [(1, "number"), (True, "bool"), ({"x": "y"}, "object")])
def test_a_label_that_is_no_text_is_400(running, core, value, found):
    running.put("Node", node("a"))
    status, body, _ = refused(core.patch_node, "a", {"metadata": {"labels": {"x": value}}})
    assert (status, body["reason"]) == (400, "BadRequest")
    assert body["message"].endswith(
        f"cannot unmarshal {found} into Go struct field ObjectMeta.metadata.labels of type string"
    )


def test_a_name_can_be_made_and_cannot_be_taken_twice(running, core):
    container = client.V1Container(name="c", image="i")
    body = client.V1Pod(metadata=client.V1ObjectMeta(generate_name="p-"), spec=client.V1PodSpec(containers=[container]))
    made = core.create_namespaced_pod("default", body)
    assert made.metadata.name.startswith("p-")
    assert len(made.metadata.name) == 7
    assert (made.status.phase, made.spec.termination_grace_period_seconds) == ("Pending", 30)
    body.metadata = client.V1ObjectMeta(name=made.metadata.name)
    status, answer, _ = refused(core.create_namespaced_pod, "default", body)
    assert (status, answer["reason"]) == (409, "AlreadyExists")


def test_deletion_with_preconditions_and_grace(running, core):
    running.put("Pod", pod("p"))
    other = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
    assert refused(core.delete_namespaced_pod, "p", "default", body=other)[0] == 409
    going = core.delete_namespaced_pod("p", "default", grace_period_seconds=10)
    assert going.metadata.deletion_grace_period_seconds == 10
    assert core.read_namespaced_pod("p", "default").metadata.deletion_timestamp > datetime.now(UTC)
    core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
    assert refused(core.read_namespaced_pod, "p", "default")[0] == 404
    assert refused(core.delete_namespaced_pod, "p", "default")[0] == 404


def test_a_collection_is_deleted_by_its_selection(running, core):
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        running.put("Pod", pod(name, labels={"app": label}, phase="Succeeded"))
    core.delete_collection_namespaced_pod("default", label_selector="app=x")
    assert [item.metadata.name for item in core.list_namespaced_pod("default").items] == ["c"]


def test_a_job_gets_its_selector_and_takes_its_pods_with_it(running, core):
    with running.client() as api:
        batch = client.BatchV1Api(api)
        container = client.V1Container(name="c", image="i")
        template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container], restart_policy="Never"))
        job = batch.create_namespaced_job(
            "default",
            client.V1Job(
                metadata=client.V1ObjectMeta(name="j"), spec=client.V1JobSpec(template=template, backoff_limit=0)
            ),
        )
        assert job.spec.selector.match_labels == {"batch.kubernetes.io/controller-uid": job.metadata.uid}
        assert job.spec.template.metadata.labels["job-name"] == "j"
        owner = running.store.get("Job", "default", "j")
        running.put("Pod", pod("j-1", owner=owner, phase="Succeeded"))
        batch.delete_namespaced_job("j", "default", propagation_policy="Background")
    assert core.list_namespaced_pod("default").items == []


def test_a_lease_is_replaced_only_with_its_version(running):
    with running.client() as api:
        leases = client.CoordinationV1Api(api)
        body = client.V1Lease(metadata=client.V1ObjectMeta(name="l"), spec=client.V1LeaseSpec(holder_identity="a"))
        made = leases.create_namespaced_lease("default", body)
        assert refused(leases.replace_namespaced_lease, "l", "default", body)[0] == 422
        made.spec.holder_identity = "b"
        after = leases.replace_namespaced_lease("l", "default", made)
        assert after.spec.holder_identity == "b"
        assert refused(leases.replace_namespaced_lease, "l", "default", made)[0] == 409


# Eviction


@pytest.fixture
def guarded(running):
    """Three ready pods of which two have to stay."""
    running.put("PodDisruptionBudget", budget("keep-two", {"app": "x"}, minAvailable=2))
    for name in ("a", "b", "c"):
        running.put("Pod", pod(name, labels={"app": "x"}))
    return running


def evict(running, name, *, version="policy/v1", **options):
    body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    path = f"/api/v1/namespaces/default/pods/{name}/eviction"
    return raw(running, "POST", path, {**body, "deleteOptions": options})


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
def test_a_budget_allows_an_eviction_it_can_spare_and_is_named_otherwise(guarded, version):
    status, _, body = evict(guarded, "a", version=version)
    assert (status, body["status"]) == (201, "Success")
    gone = guarded.store.get("Pod", "default", "a")
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 30
    assert {item["type"]: item["reason"] for item in gone["status"]["conditions"] if "reason" in item} == {
        "DisruptionTarget": "EvictionByEvictionAPI"
    }
    status, headers, body = evict(guarded, "b", version=version)
    assert status == 429
    assert body["reason"] == "TooManyRequests"
    assert body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert body["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget keep-two needs 2 healthy pods and has 2 currently",
        }
    ]
    assert "Retry-After" not in headers, "a real server names no time for a budget"
    guarded.put("Pod", pod("d", labels={"app": "x"}))
    assert evict(guarded, "b", version=version)[0] == 201


def test_the_official_client_evicts(guarded):
    with guarded.client() as api:
        core = client.CoreV1Api(api)
        body = client.V1Eviction(metadata=client.V1ObjectMeta(name="a", namespace="default"))
        core.create_namespaced_pod_eviction("a", "default", body)
        body = client.V1Eviction(metadata=client.V1ObjectMeta(name="b", namespace="default"))
        assert refused(core.create_namespaced_pod_eviction, "b", "default", body)[0] == 429
        policy = client.PolicyV1Api(api).read_namespaced_pod_disruption_budget("keep-two", "default")
        assert (policy.status.disruptions_allowed, policy.status.current_healthy) == (0, 2)


def test_eviction_keeps_its_preconditions(guarded):
    status, _, body = evict(guarded, "a", preconditions={"uid": "other"})
    assert (status, body["reason"]) == (409, "Conflict")
    assert evict(guarded, "a", preconditions={"resourceVersion": "1"})[0] == 409
    assert evict(guarded, "none")[0] == 404
    assert "deletionTimestamp" not in guarded.store.get("Pod", "default", "a")["metadata"]
    uid = guarded.store.get("Pod", "default", "a")["metadata"]["uid"]
    assert evict(guarded, "a", preconditions={"uid": uid}, gracePeriodSeconds=0)[0] == 201
    assert guarded.store.find("Pod", "default", "a") is None


def test_budgets_are_checked_before_preconditions(guarded):
    evict(guarded, "a")
    assert evict(guarded, "b", preconditions={"uid": "other"})[0] == 429


def test_a_new_node_takes_no_pods_yet(core):
    not_ready = client.V1Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
    spare = client.V1Taint(key="spare", value="1", effect="NoExecute")
    for name, given in (("bare", None), ("tainted", [spare, not_ready])):
        core.create_node(client.V1Node(metadata={"name": name}, spec=client.V1NodeSpec(taints=given)))
    assert [taint.key for taint in core.read_node("bare").spec.taints] == [not_ready.key]
    assert [taint.key for taint in core.read_node("tainted").spec.taints] == [spare.key, not_ready.key]


def test_two_budgets_on_a_pod_are_a_500(guarded):
    guarded.put("PodDisruptionBudget", budget("too", {"app": "x"}, maxUnavailable=1))
    status, _, body = evict(guarded, "a")
    assert (status, body["code"], "reason" in body) == (500, 500, False)
    assert body["message"].startswith("This pod has more than one PodDisruptionBudget")


def test_finished_pods_and_unready_ones_of_a_satisfied_budget_go(guarded):
    guarded.put("Pod", pod("done", labels={"app": "x"}, phase="Succeeded", ready=False))
    guarded.put("Pod", pod("sick", labels={"app": "x"}, ready=False))
    evict(guarded, "a")
    assert evict(guarded, "b")[0] == 429
    assert evict(guarded, "done")[0] == 201
    assert evict(guarded, "sick")[0] == 201, "it counts for nothing, and two healthy ones are left"


# Who may call, and what they are told


def test_a_request_without_a_valid_token_is_unauthorized(shared):
    status, _, body = raw(shared, "GET", "/api/v1/nodes", token="")
    assert (status, body["reason"]) == (401, "Unauthorized")
    assert raw(shared, "GET", "/api/v1/nodes", token="wrong")[0] == 401
    assert raw(shared, "GET", "/api/v1", token="")[0] == 401
    with serving(anonymous=True) as open_to_all:
        assert raw(open_to_all, "GET", "/api/v1/nodes", token="")[0] == 200
        assert raw(open_to_all, "GET", "/api/v1/nodes", token="wrong")[0] == 401


def test_a_reader_may_not_write(running):
    running.put("Node", node("a"))
    with running.client(READER_TOKEN) as api:
        core = client.CoreV1Api(api)
        assert len(core.list_node().items) == 1
        status, body, _ = refused(core.patch_node, "a", {"spec": {"unschedulable": True}})
        assert (status, body["reason"]) == (403, "Forbidden")
        assert body["message"] == (
            'nodes "a" is forbidden: User "reader" cannot patch resource "nodes" in API group "" at the cluster scope'
        )
        may = client.V1SelfSubjectAccessReviewSpec(resource_attributes=client.V1ResourceAttributes(verb="patch"))
        review = client.V1SelfSubjectAccessReview(spec=may)
        assert client.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed is False


def test_token_reviews_name_account_pod_and_node(running):
    running.put("Node", node("gpu-0"))
    agent = running.put("Pod", pod("agent-1"))
    token = running.do(
        lambda: running.api.access.issue(
            "default", "agent", audiences=["kcover"], lifetime=timedelta(hours=1), pod=agent
        )
    )

    def review(presented, *audiences):
        spec = client.V1TokenReviewSpec(token=presented, audiences=list(audiences) or None)
        with running.client() as api:
            return client.AuthenticationV1Api(api).create_token_review(client.V1TokenReview(spec=spec)).status

    known = review(token, "kcover")
    assert known.authenticated is True
    assert known.user.username == "system:serviceaccount:default:agent"
    assert known.audiences == ["kcover"]
    assert known.user.extra["authentication.kubernetes.io/pod-uid"] == [agent["metadata"]["uid"]]
    assert known.user.extra["authentication.kubernetes.io/node-name"] == ["gpu-0"]
    assert not review(token).authenticated, "not meant for the API server"
    assert "audiences" in review(token, "other").error
    assert not review("forged", "kcover").authenticated
    assert review(ADMIN_TOKEN).user.username == access.ADMIN.name
    running.do(lambda: running.store.delete("Pod", "default", "agent-1", grace=0))
    assert not review(token, "kcover").authenticated, "a bound token dies with its pod"


def test_a_token_is_bound_to_the_accounts_own_pod(running):
    for account in ("agent", "other"):
        running.put("ServiceAccount", {"metadata": {"name": account, "namespace": "default"}})
    made = running.put("Pod", with_account(pod("agent-1"), "agent"))

    def request(account, **reference):
        bound = client.V1BoundObjectReference(**{"kind": "Pod", "name": "agent-1", **reference})
        wish = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=["kcover"], bound_object_ref=bound)
        )
        with running.client() as api:
            return client.CoreV1Api(api).create_namespaced_service_account_token(account, "default", wish)

    token = request("agent", uid=made["metadata"]["uid"]).status.token
    with running.client() as api:
        review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token, audiences=["kcover"]))
        user = client.AuthenticationV1Api(api).create_token_review(review).status.user
    assert user.extra["authentication.kubernetes.io/pod-name"] == ["agent-1"]
    assert refused(request, "other")[0] == 400
    assert refused(request, "agent", name="nobody")[0] == 404
    assert refused(request, "agent", uid="of-another-life")[0] == 409
    assert refused(request, "agent", kind="Secret")[0] == 400


def with_account(made, account):
    return {**made, "spec": {**made["spec"], "serviceAccountName": account}}


def test_a_token_is_over_after_its_time(running):
    running.put("ServiceAccount", {"metadata": {"name": "a", "namespace": "default"}})
    with running.client() as api:
        wish = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=["kcover"], expiration_seconds=600)
        )
        token = client.CoreV1Api(api).create_namespaced_service_account_token("a", "default", wish).status.token
        review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token, audiences=["kcover"]))
        reviews = client.AuthenticationV1Api(api)
        assert reviews.create_token_review(review).status.authenticated is True
        running.skipped = timedelta(seconds=601)
        assert not reviews.create_token_review(review).status.authenticated


# What was asked, and what can be made to fail


def test_calls_are_counted_by_node_and_outcome(guarded):
    guarded.put("Node", node("gpu-0"))
    with guarded.client() as api:
        core = client.CoreV1Api(api)
        core.list_node()
        core.patch_node("gpu-0", {"spec": {"unschedulable": True}})
    evict(guarded, "a")
    evict(guarded, "b")
    raw(guarded, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}})
    calls = guarded.api.calls
    assert calls.destructive(node="gpu-0") == 3
    assert calls.writes() == 3
    assert calls.total(verb="create", resource="pods/eviction", node="gpu-0") == 2
    report = calls.report(resource="pods/eviction")
    assert sorted((row["status"], row["applied"], row["count"]) for row in report["calls"]) == [
        (201, True, 1),
        (429, False, 1),
    ]
    assert [call["name"] for call in report["recent"]] == ["a", "b"]
    assert report["recent"][0]["user"] == access.ADMIN.name
    calls.reset()
    assert calls.total() == 0


def test_a_job_counts_for_the_node_it_is_pinned_to(running):
    spec = {"restartPolicy": "Never", "containers": [{"name": "c"}], "nodeName": "gpu-7"}
    body = {"metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}
    assert raw(running, "POST", "/apis/batch/v1/namespaces/default/jobs", body)[0] == 201
    assert running.api.calls.destructive(node="gpu-7") == 1


def test_requests_about_a_machine_count_for_its_node(running):
    machine = {"metadata": {"name": "m", "namespace": "default"}, "status": {"nodeRef": {"name": "gpu-7"}}}
    running.put("Machine", machine)
    running.put("NodeClaim", {"metadata": {"name": "c"}, "status": {"nodeName": "gpu-7"}})
    reset = {"metadata": {"name": "r"}, "spec": {"nodeName": "gpu-7"}}
    for verb, path, body in (
        ("DELETE", "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines/m", None),
        ("DELETE", "/apis/karpenter.sh/v1/nodeclaims/c", None),
        ("POST", "/apis/janitor.dgxc.nvidia.com/v1alpha1/gpuresets", reset),
    ):
        assert raw(running, verb, path, body)[0] < 300
    assert running.api.calls.destructive(node="gpu-7") == 3


@pytest.mark.parametrize(("status", "reason"), [(429, "TooManyRequests"), (409, "Conflict"), (500, "InternalError")])
def test_a_planned_refusal_comes_as_often_as_planned(running, core, status, reason):
    running.put("Node", node("a"))
    running.do(lambda: running.api.faults.add({"status": status, "match": "PATCH /api/v1/nodes/", "count": 2}))
    for _ in range(2):
        found, body, headers = refused(
            core.patch_node, "a", {"spec": {"unschedulable": True}}, _request_timeout=waiting.HANG_SECONDS
        )
        assert (found, body["reason"]) == (status, reason)
        assert headers.get("Retry-After") == ("1" if status == 429 else None)
    assert core.read_node("a").spec.unschedulable is None
    assert core.patch_node("a", {"spec": {"unschedulable": True}}).spec.unschedulable is True
    assert running.api.calls.total(verb="patch") == 3


def test_an_effect_can_be_hidden_behind_a_failure(running, core):
    running.put("Node", node("a"))
    running.do(lambda: running.api.faults.add({"status": 500, "match": "patch nodes/a", "after": True}))
    assert refused(core.patch_node, "a", {"spec": {"unschedulable": True}})[0] == 500
    assert core.read_node("a").spec.unschedulable is True
    (row,) = running.api.calls.report(verb="patch")["calls"]
    assert (row["status"], row["applied"]) == (500, True)


@pytest.mark.parametrize("after", [False, True])
def test_a_connection_can_be_cut(running, core, after):
    running.put("Node", node("a"))
    running.do(lambda: running.api.faults.add({"status": "cut", "match": "PATCH", "after": after}))
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        raw(
            running, "PATCH", "/api/v1/nodes/a", {"spec": {"unschedulable": True}}, media="application/merge-patch+json"
        )
    assert core.read_node("a").spec.unschedulable is (True if after else None)


def test_an_answer_can_be_withheld(running, core):
    running.put("Node", node("a"))
    running.do(lambda: running.api.faults.add({"status": "timeout", "match": "get /api/v1/nodes/a$", "seconds": 0.3}))
    before = time.monotonic()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        raw(running, "GET", "/api/v1/nodes/a")
    assert time.monotonic() - before >= 0.3
    assert core.read_node("a").metadata.name == "a"
    assert running.api.calls.report(verb="get")["recent"][0]["fault"] == "timeout"


@pytest.mark.parametrize("after", [False, True])
def test_a_request_can_be_held_before_or_after_its_effect_and_then_goes_on(running, core, after):
    running.put("Node", node("a"))
    fault = {"status": "hold", "match": "PATCH", "body": "unschedulable", "after": after, "name": "first"}
    running.do(lambda: running.api.faults.add(fault))
    core.patch_node("a", {"metadata": {"labels": {"x": "y"}}})  # not what the fault means
    with futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(core.patch_node, "a", {"spec": {"unschedulable": True}})
        waiting.until(lambda: running.api.faults.hanging())
        assert [held["name"] for held in running.api.faults.hanging()] == ["first"]
        assert core.read_node("a").spec.unschedulable is (True if after else None)
        running.do(lambda: running.api.faults.clear("another"))
        assert not answer.done()
        running.do(lambda: running.api.faults.clear("first"))
        assert answer.result(60).spec.unschedulable is True
    assert running.api.faults.hanging() == []
    assert [(row["applied"], row["fault"]) for row in running.api.calls.report(verb="patch")["recent"]] == [
        (True, ""),
        (True, "hold after" if after else "hold"),
    ]


def test_a_held_request_whose_client_hangs_up_has_no_effect(running, core):
    running.put("Node", node("a"))
    running.do(lambda: running.api.faults.add({"status": "hold", "match": "PATCH"}))
    with contextlib.closing(http.client.HTTPConnection(running.url.removeprefix("http://"))) as connection:
        headers = {"Content-Type": "application/merge-patch+json", "Authorization": f"Bearer {ADMIN_TOKEN}"}
        connection.request("PATCH", "/api/v1/nodes/a", json.dumps({"spec": {"unschedulable": True}}), headers)
        waiting.until(lambda: running.api.faults.hanging())
    running.do(running.api.faults.clear)
    waiting.until(lambda: not running.api.faults.hanging())
    assert core.read_node("a").spec.unschedulable is None
    assert running.api.calls.report(verb="patch")["calls"][0]["applied"] is False


def test_a_fault_can_match_a_list_selection(running, core):
    for name in ("a", "b"):
        running.put("Node", node(name, of=name))
    running.do(lambda: running.api.faults.add({"status": 500, "match": "GET", "object": '"name":"b"'}))
    assert [item.metadata.name for item in core.list_node(label_selector="of=a").items] == ["a"]
    with pytest.raises(ApiException):
        core.list_node(label_selector="of=b")


def test_a_fault_can_match_the_object_and_skip_requests(running, core):
    running.put("Node", node("a"))
    running.do(
        lambda: running.api.faults.add(
            {"status": 500, "match": "GET /api/v1/nodes/a$", "object": '"unschedulable":true', "skip": 1}
        )
    )
    core.read_node("a")
    core.read_node("a")
    core.patch_node("a", {"spec": {"unschedulable": True}})
    core.read_node("a")
    assert refused(core.read_node, "a")[0] == 500
    core.read_node("a")


def test_an_api_server_can_be_down_altogether(running):
    running.do(lambda: running.api.faults.add({"status": "cut", "count": -1}))
    for path in ("/version", "/readyz", "/api", "/apis/policy", "/api/v1/nodes"):
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            raw(running, "GET", path)
    running.do(running.api.faults.clear)
    assert raw(running, "GET", "/readyz")[2] == "ok"


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({}, "status"),
        ({"status": 418}, "status"),
        ({"status": 500, "count": 0}, "count"),
        ({"status": 500, "count": "2"}, "count"),
        ({"status": 500, "match": "GET ("}, "match"),
        ({"status": "timeout", "seconds": 1e9}, "seconds"),
        ({"status": 500, "body": "("}, "body"),
        ({"status": 500, "object": 7}, "object"),
        ({"status": 500, "skip": -1}, "skip"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_by_its_field(shared, fault, named):
    with pytest.raises(ValueError, match=f"^{named}: "):
        shared.api.faults.add(fault)
    assert shared.api.faults.pending() == []
