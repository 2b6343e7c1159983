"""deploy/rbac.yaml allows what the port needs, and nothing else."""

import contextlib
from datetime import UTC, datetime

from kcover_portal.kube import port
from tests.contract import rbac

PLACE = "kcover-system"


def _walk(rig):
    """Every verb of the port, at least once, each in every way that asks for something else."""
    cluster, change = rig.cluster, port.NodeChange(cordon=True)
    job = port.JobSpec(name="reboot", namespace=PLACE, node="gpu-1", image="i", command=("reboot",))
    train = rig.pod("train", node="gpu-1", labels={"job": "x"})["metadata"]["uid"]
    victim = rig.pod("victim", node="gpu-1")["metadata"]["uid"]

    def event(namespace):
        fields = {"reason": "r", "message": "m", "type": "Normal", "involved_kind": "Node", "involved_name": "gpu-1"}
        at = datetime(2026, 11, 21, tzinfo=UTC)
        return port.EventDraft(name=namespace, namespace=namespace, involved_uid="", at=at, **fields)

    def of_every_kind(verb):
        for kind in port.WORKLOADS:
            with contextlib.suppress(port.NotFound):
                verb(kind)

    yield "version", lambda: cluster.version()
    yield "list_nodes", lambda: cluster.list_nodes()
    yield "watch_nodes", lambda: list(cluster.watch_nodes(cluster.list_nodes().resource_version, timeout=1))
    yield "get_node", lambda: cluster.get_node("gpu-1")
    yield "apply_node", lambda: cluster.apply_node("gpu-1", change)
    yield "list_pods", lambda: (cluster.list_pods(node="gpu-1"), cluster.list_pods(namespace=rig.namespace))
    yield "watch_pods", lambda: list(cluster.watch_pods(None, timeout=1))
    yield "evict", lambda: cluster.evict(rig.namespace, "train", uid=train)
    yield "evict", lambda: cluster.evict(rig.namespace, "train", uid="another")
    yield "delete_pod", lambda: cluster.delete_pod(rig.namespace, "victim", uid=victim)
    yield "budgets", lambda: (cluster.budgets(), cluster.budgets(rig.namespace))
    yield "emit", lambda: (cluster.emit(event("kce-rescue-system")), cluster.emit(event(rig.forbidden_namespace())))
    yield "list_events", lambda: cluster.list_events()
    yield "watch_events", lambda: list(cluster.watch_events(None, timeout=1))
    yield "ensure_job", lambda: cluster.ensure_job(job)
    yield "job_state", lambda: cluster.job_state(PLACE, "reboot")
    yield "delete_job", lambda: cluster.delete_job(PLACE, "reboot")
    yield "workloads", lambda: cluster.workloads(labels={"a": "b"})
    yield "workload", lambda: of_every_kind(lambda kind: cluster.workload(rig.namespace, kind, "x"))
    yield (
        "label_workload",
        lambda: of_every_kind(lambda k: cluster.label_workload(rig.namespace, k, "x", labels={"a": None})),
    )
    yield "review_token", lambda: cluster.review_token("t", audiences=[])


def test_the_rules_are_those_that_the_port_uses(simulator):
    simulator.node("gpu-1")
    simulator.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
    walked = set()
    for verb, act in _walk(simulator):
        act()
        walked.add(verb)
    verbs = {name for name, value in vars(port.Cluster).items() if callable(value) and not name.startswith("_")}
    assert walked == verbs
    rules = set(rbac.rules(rbac.documents()))
    # What is asked in a namespace is allowed by a Role there or by the ClusterRole; one Event is meant to be refused.
    seen = {asked for asked in simulator.connection.seen if asked.namespace != simulator.name("other")}
    used = {asked if asked in rules else asked._replace(namespace="") for asked in seen}
    assert used == rules


def test_every_role_is_bound_to_the_portals_account():
    documents = rbac.documents()
    accounts = [d["metadata"] for d in documents if d["kind"] == "ServiceAccount"]
    roles = {(d["kind"], d["metadata"]["name"], d["metadata"].get("namespace")) for d in documents if "rules" in d}
    bound = set()
    for document in documents:
        if "roleRef" in document:
            reference = document["roleRef"]
            bound.add((reference["kind"], reference["name"], document["metadata"].get("namespace")))
            assert [{**subject} for subject in document["subjects"]] == [
                {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
                for account in accounts
            ]
    assert bound == roles
