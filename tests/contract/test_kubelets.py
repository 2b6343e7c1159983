"""A real API server lets a kubelet write what deploy/kubelet-policy.yaml says, and no more."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract import admission, apiserver as real
from tests.contract.admission import JSON_PATCH, MERGE, denial
from tests.deploy.test_kubelet_policy import CHANGES, LIES, OWN, POLICY, event, node

pytestmark = [pytest.mark.needs_cluster, real.needs_assets]
Object = dict[str, Any]
EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
OF_NODES = {one for one in POLICY.messages if "Event" not in one}
KEPT = ("labels", "annotations")


@pytest.fixture
def bound(apiserver: real.ApiServerRig) -> Iterator[real.ApiServerRig]:
    """The server with the policy in force."""
    canary, name = add(apiserver, "canary")
    kubelet = apiserver.kubelet(name)
    tries = itertools.count()  # a patch that changes nothing is admitted

    def denied() -> int:
        status, _ = kubelet.ask("PATCH", canary, {"metadata": {"labels": {"kcover.io/x": f"y{next(tries)}"}}}, MERGE)
        return status

    with admission.in_force(apiserver, "kubelet-policy.yaml", denied=denied):
        yield apiserver


def add(rig: real.ApiServerRig, name: str) -> tuple[str, str]:
    """A node that the portal has cordoned; returns its path and name. It has no podCIDR, which is fixed once set."""
    made = node() | {"apiVersion": "v1", "spec": {"unschedulable": True}}
    made["metadata"]["name"] = rig.name(name)
    rig.create(made)
    return rig.place("Node", "", rig.name(name)), rig.name(name)


@pytest.mark.parametrize("subresource", ["", "/status"])
def test_a_kubelet_changes_of_its_node_what_is_its_own(bound: real.ApiServerRig, subresource: str) -> None:
    at, name = add(bound, "gpu-1")
    kubelet = bound.kubelet(name)
    for number, change in enumerate(OWN):
        new = kubelet.demand("GET", at)
        change(new)
        assert kubelet.ask("PUT", f"{at}{subresource}?dryRun=All", new)[0] == 200, number
    bound.admin.demand("PATCH", at, [{"op": "replace", "path": "/spec", "value": {}}], JSON_PATCH)
    bare = kubelet.demand("GET", at)
    assert bare["spec"] == {}
    bare["metadata"]["labels"]["a"] = "b"
    assert kubelet.ask("PUT", f"{at}{subresource}?dryRun=All", bare)[0] == 200


def test_a_kubelet_changes_nothing_else_of_its_node(bound: real.ApiServerRig) -> None:
    at, name = add(bound, "gpu-1")
    found = set()
    for number, change in enumerate(CHANGES):
        new = bound.admin.demand("GET", at)
        change(new)
        status, answer = bound.kubelet(name).ask("PUT", f"{at}?dryRun=All", new)
        assert status in (403, 422), number  # 403: the API server itself keeps kubelets from taints
        found.add(denial((status, answer)))
        assert bound.admin.ask("PUT", f"{at}?dryRun=All", new)[0] == 200, number
    assert found - {""} == OF_NODES


def test_a_kubelet_changes_nothing_else_by_the_status_of_its_node(bound: real.ApiServerRig) -> None:
    """A server takes labels and annotations from an update of the status, too."""
    at, name = add(bound, "gpu-1")
    kubelet = bound.kubelet(name)
    for number, change in enumerate(CHANGES):
        old = kubelet.demand("GET", at)
        new = copy.deepcopy(old)
        change(new)
        status, answer = kubelet.ask("PUT", f"{at}/status?dryRun=All", new)
        if any(new["metadata"].get(key) != old["metadata"].get(key) for key in KEPT):
            assert denial((status, answer)), number
        else:
            assert status == 403 or answer["spec"] == old["spec"], number
    patch = {"metadata": {"labels": {"kcover.io/exclude": "true"}}, "status": {"nodeInfo": {"kernelVersion": "7"}}}
    assert denial(kubelet.ask("PATCH", f"{at}/status", patch, MERGE))


def test_a_kubelet_writes_events_about_its_own_node_and_about_pods(bound: real.ApiServerRig) -> None:
    kubelet = bound.kubelet("gpu-1")
    for told in (event(), event("train-0", kind="Pod"), event("train-0", kind="Pod", annotations={"a/b": "c"})):
        assert kubelet.ask("POST", f"{EVENTS}?dryRun=All", told)[0] == 201
    assert kubelet.ask("POST", f"{NEW_EVENTS}?dryRun=All", renewed(event()))[0] == 201


def test_a_kubelet_writes_no_other_event(bound: real.ApiServerRig) -> None:
    kubelet, found = bound.kubelet("gpu-1"), set()
    told = event()
    told["metadata"]["name"] = bound.name("x")
    stored = bound.admin.demand("POST", EVENTS, told)
    for number, lie in enumerate(LIES):
        made = denial(kubelet.ask("POST", f"{EVENTS}?dryRun=All", lie))
        update = {**lie, "metadata": {**stored["metadata"], **lie["metadata"], "name": told["metadata"]["name"]}}
        changed = denial(kubelet.ask("PUT", f"{EVENTS}/{told['metadata']['name']}?dryRun=All", update))
        assert made == changed != "", number
        found.add(made)
        assert denial(kubelet.ask("POST", f"{NEW_EVENTS}?dryRun=All", renewed(lie))) == made, number
        assert bound.admin.ask("POST", f"{EVENTS}?dryRun=All", lie)[0] == 201, number
    assert found == POLICY.messages - OF_NODES


def renewed(told: Object) -> Object:
    """The Event in Kubernetes' newer API group."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": told["metadata"],
        "eventTime": "2026-12-01T03:00:00.000000Z",
        "regarding": told["involvedObject"],
        "reason": told["reason"],
        "type": "Warning",
        "action": "Watch",
        "reportingController": "kubernetes.io/kubelet",
        "reportingInstance": "gpu-1",
    }
