"""The product against a real kube-apiserver, with the rights of deploy/rbac.yaml and nodes that the test creates.

Only the API server runs; the test plays kubelet, controllers and all other components.
"""

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.contract import apiserver
from tests.story import product as products
from tests.story.product import Product, call

pytestmark = [pytest.mark.needs_cluster, apiserver.needs_assets]

ISOLATE = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata:
  name: isolate
spec:
  rules:
    - priority: 10
      errorCode: ["79"]
      actions:
        - name: cordon
        - name: taint
"""
HEAL = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata:
  name: heal
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - name: drain
          attribute: {waittime: "20min"}
        - name: reboot
          attribute: {unCordon: "true"}
"""
FOREIGN = {"key": "dedicated", "value": "research", "effect": "NoExecute", "timeAdded": "2026-11-21T05:00:00Z"}
LATER = {"key": "maintenance", "effect": "NoSchedule"}
OURS = {"key": "kcover.io/unhealthy", "value": "79", "effect": "NoSchedule"}


@pytest.fixture
def server() -> Iterator[apiserver.Installed]:
    """A server of the story's own: each portal numbers its rescues from 1, and names Jobs and Events by them."""
    with apiserver.installed() as made:
        yield made


@pytest.fixture
def rig(server: apiserver.Installed) -> apiserver.ApiServerRig:
    """Everybody but the portal."""
    return apiserver.ApiServerRig(server)


def register(product: Product, server: apiserver.Installed, policies: str, *more: str) -> str:
    """Sets the portal up as the manual says and starts it; returns an agents' enrolment token."""
    (product.folder / "kubeconfig").write_text(server.kubeconfig())
    (product.folder / "policies.yaml").write_text(policies)
    printed = product.manage_all(
        [
            ["migrate", "--verbosity", "0"],
            ["cluster", "add", "real", "--kubeconfig", str(product.folder / "kubeconfig"), *more],
            ["cluster", "guards", "real", "--set", products.FEW_NODES],
            ["token", "create", "--kind", "operator", "--cluster", "real"],
            ["token", "create", "--kind", "agent", "--cluster", "real"],
            ["policy", "apply", "-f", str(product.folder / "policies.yaml")],
        ]
    )
    product.token = printed[3].strip()
    product.start_processes()
    product.wait(lambda: product.get("/api/v1/nodes")["results"], "the watch to list the nodes")
    return printed[4].strip()


def post(product: Product, secret: str, node: str, *, boot_id: str = "boot-1", **content: Any) -> str:
    """One report of the node's agent; returns its own token, with which it goes on."""
    if secret.startswith("kce_"):
        status, enrolled = call("POST", product.url + "/api/v1/agent/enrol", {"node": node}, token=secret)
        assert status == 201, enrolled
        secret = enrolled["token"]
    body = {
        "version": 1,
        "node": node,
        "boot_id": boot_id,
        "batch_id": str(uuid.uuid4()),
        "sent_at": datetime.now(UTC).isoformat(),
        "agent": "story",
        **content,
    }
    status, answer = call("POST", product.url + "/api/v1/agent/reports", body, token=secret)
    assert (status, answer["rejected"]) == (202, []), answer
    return secret


def fault(code: int) -> dict[str, Any]:
    """As an agent reads it from the kernel log."""
    line = f"NVRM: Xid (PCI:0000:4e:00): {code}, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    return {"kind": "xid", "code": code, "pci": "0000:4e:00", "message": line, "source": "kmsg"}


def test_a_rescue_leaves_its_marks_and_release_takes_exactly_them_back(
    product: Product, server: apiserver.Installed, rig: apiserver.ApiServerRig
) -> None:
    node = rig.name("gpu")
    rig.node(node, taints=[FOREIGN], podCIDR="10.1.0.0/24")
    untouched = rig.read("Node", node)
    secret = register(product, server, ISOLATE)
    post(product, secret, node, faults=[fault(79)])

    rescue = product.wait_rescue(node, "succeeded")

    assert (rescue["outcome"], [step["state"] for step in rescue["steps"]]) == ("isolated", ["done", "done"])
    marked = rig.read("Node", node)
    assert marked["spec"]["unschedulable"] is True
    assert marked["spec"]["taints"] == [*untouched["spec"]["taints"], OURS]
    assert marked["metadata"]["labels"]["kcover.io/state"] == "quarantined"
    assert json.loads(marked["metadata"]["annotations"]["kcover.io/rescue"])["rescue"] == rescue["id"]

    def told() -> list[dict[str, Any]]:
        """The Events about the fault: they are written after the step, so the rescue may have ended before."""
        events = rig.admin.demand("GET", "/api/v1/namespaces/kce-rescue-system/events")["items"]
        return [e for e in events if e["reason"] == "XidError" and e["involvedObject"]["name"] == node]

    (event,) = product.wait(told, "the Event")
    assert event["message"].startswith("GPU Xid error, pci:0000:4e:00, xid:79, log: ")

    # Somebody else changes the node meanwhile; that is theirs, and stays.
    theirs = {"metadata": {"labels": {"team": "b"}}, "spec": {"taints": [*marked["spec"]["taints"], LATER]}}
    rig.merge("Node", node, theirs)
    product.manage("release", node)

    product.wait(lambda: "kcover.io/rescue" not in rig.read("Node", node)["metadata"]["annotations"], "the release")
    released = rig.read("Node", node)
    assert released["spec"] == {**untouched["spec"], "taints": [*untouched["spec"]["taints"], LATER]}
    assert released["metadata"]["labels"] == {**untouched["metadata"]["labels"], "team": "b"}
    assert released["metadata"]["annotations"] == untouched["metadata"]["annotations"]
    assert released["status"] == untouched["status"]
    of_node = f"/api/v1/incidents?node={node}"
    product.wait(lambda: product.get(of_node)["results"][0]["state"] == "closed", "the incident to be closed")
    assert len(product.get(of_node)["results"]) == 1
    assert "intact" in product.manage("ledger", "verify", "--cluster", "real")


def test_a_drain_respects_the_budget_and_a_job_reboots_the_node(
    product: Product, server: apiserver.Installed, rig: apiserver.ApiServerRig
) -> None:
    node = rig.name("gpu")
    rig.node(node)
    for pod in ("train-0", "train-1"):
        rig.pod(pod, node=node, owner="ReplicaSet", labels={"job": "llm"}, gpus=4)
    rig.pod("exporter", node=node, owner="DaemonSet")
    rig.budget("keep-one", match={"job": "llm"}, min_available=1)
    rig.settle()
    untouched = rig.read("Node", node)
    secret = register(product, server, HEAL, "--reboot", "job", "--job-image", "registry/reboot:1")
    agent = post(product, secret, node, faults=[fault(62)])

    def pods() -> dict[str, bool]:
        """Each pod of the test, and whether it was told to go."""
        found = rig.admin.demand("GET", rig.place("Pod", rig.namespace))["items"]
        return {pod["metadata"]["name"]: "deletionTimestamp" in pod["metadata"] for pod in found}

    def step(name: str) -> dict[str, Any]:
        rescue = product.rescue_of(node) or {"steps": []}
        return next((one for one in rescue["steps"] if one["name"] == name), {"state": "", "because": ""})

    def job() -> Any:
        found = rig.admin.demand("GET", rig.place("Job", "kcover-jobs"))["items"]
        return [one for one in found if one["spec"]["template"]["spec"]["nodeName"] == node]

    # One pod may go, the budget keeps the other one until its replacement runs elsewhere.
    product.wait(lambda: "is refused by keep-one" in step("drain")["because"], "the budget to refuse")
    (leaving,) = [name for name, reported in pods().items() if reported]
    assert leaving in ("train-0", "train-1")
    rig.remove("Pod", leaving, namespace=rig.namespace)
    rig.pod("replacement", node=rig.name("elsewhere"), owner="ReplicaSet", labels={"job": "llm"})
    rig.settle()
    staying = next(name for name in ("train-0", "train-1") if name != leaving)
    product.wait(lambda: pods()[staying], "the other pod to be told to go")
    rig.remove("Pod", staying, namespace=rig.namespace)

    # The reboot: its job is made in the one namespace where the portal may; the kubelet comes back with another boot.
    (made,) = product.wait(job, "the reboot job")
    assert {"name": "KCOVER_BOOT_ID", "value": "boot-1"} in made["spec"]["template"]["spec"]["containers"][0]["env"]
    assert pods() == {"exporter": False, "replacement": False}
    rig.merge("Node", node, {"status": {"nodeInfo": {"bootID": "boot-2"}}}, status=True)
    product.wait(lambda: step("verify")["state"] in ("running", "waiting"), "the proof of health to begin")
    post(product, agent, node, boot_id="boot-2")

    rescue = product.wait_rescue(node, "succeeded")
    assert (rescue["outcome"], rescue["verified"]) == ("healed", True)
    healed = rig.read("Node", node)
    assert healed["spec"] == untouched["spec"]
    assert healed["metadata"]["labels"] == untouched["metadata"]["labels"]
    assert healed["metadata"]["annotations"] == untouched["metadata"]["annotations"]
