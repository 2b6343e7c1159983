"""deploy/rbac.yaml, and the files of single features allow what the port needs, and nothing else."""

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest

from kcover_portal.kube import port
from tests.contract import apiserver as real, rbac

PLACE, PREFLIGHT, LEASES = "kcover-jobs", "kcover-preflight", "kcover-lease"
MACHINES = (port.MACHINE, port.NODE_CLAIM, port.REBOOT_NODE, port.GPU_RESET)


def walk(rig):
    """Every verb of the port, at least once, each in every way that asks for something else."""
    node = rig.name("gpu")
    cluster, change = rig.cluster, port.NodeChange(cordon=True)
    job = port.JobSpec(name=rig.name("reboot"), namespace=PLACE, node=node, image="i", command=("reboot",))
    train = rig.pod("train", node=node, labels={"job": "x"})["metadata"]["uid"]
    victim = rig.pod("victim", node=node)["metadata"]["uid"]
    rig.pod("anew", node=node)

    at = datetime(2026, 11, 21, tzinfo=UTC)

    def event(namespace):
        fields = {"reason": "r", "message": "m", "type": "Normal", "involved_kind": "Node", "involved_name": node}
        name = rig.name(namespace)
        return port.EventDraft(name=name, namespace=namespace, involved_uid="", at=at, **fields)

    def of_every_kind(verb):
        for kind in port.WORKLOADS:
            with contextlib.suppress(port.NotFound, port.RefusedByServer):  # the latter: cannot be suspended
                verb(kind)

    def of_policies(verb):
        for kind in port.POLICY_KINDS:
            with contextlib.suppress(port.NotFound):
                verb(kind)

    yield "version", lambda: cluster.version()
    yield "is_allowed", lambda: cluster.is_allowed(port.Right("patch", "", "nodes"))
    yield "list_nodes", lambda: cluster.list_nodes()
    yield "count_nodes", lambda: cluster.count_nodes()
    yield "watch_nodes", lambda: list(cluster.watch_nodes(cluster.list_nodes().resource_version, timeout=1))
    yield "get_node", lambda: cluster.get_node(node)
    yield "apply_node", lambda: cluster.apply_node(node, change)
    yield "list_pods", lambda: (cluster.list_pods(node=node), cluster.list_pods(namespace=rig.namespace))
    yield "pods_version", lambda: cluster.pods_version()
    yield "watch_pods", lambda: list(cluster.watch_pods(cluster.pods_version(), timeout=1))
    yield "evict", lambda: cluster.evict(rig.namespace, "train", uid=train)
    yield "evict", lambda: cluster.evict(rig.namespace, "anew", uid="another")
    yield "delete_pod", lambda: cluster.delete_pod(rig.namespace, "victim", uid=victim)
    yield "pod_log", lambda: _of_nothing(lambda: cluster.pod_log("default", "x", container="c", since=at, most=10))
    yield "budgets", lambda: (cluster.budgets(), cluster.budgets(rig.namespace))
    yield "emit", lambda: (cluster.emit(event("kce-rescue-system")), cluster.emit(event(rig.forbidden_namespace())))
    yield "list_events", lambda: cluster.list_events()
    yield (
        "watch_events",
        lambda: list(cluster.watch_events(cluster.list_events().resource_version, timeout=1)),
    )
    yield "ensure_job", lambda: cluster.ensure_job(job)
    yield "job_state", lambda: cluster.job_state(PLACE, job.name)
    yield "delete_job", lambda: cluster.delete_job(PLACE, job.name)
    pair = replace(job, name=rig.name("pair"), namespace=PREFLIGHT, command=("python3",))
    yield "ensure_job", lambda: cluster.ensure_job(pair)
    yield "job_state", lambda: cluster.job_state(PREFLIGHT, pair.name)
    yield "delete_job", lambda: cluster.delete_job(PREFLIGHT, pair.name)
    claim = port.ClaimSpec(name=rig.name("check"), namespace=PLACE)
    yield "ensure_claim", lambda: cluster.ensure_claim(claim)
    yield "claim_state", lambda: cluster.claim_state(PLACE, claim.name)
    yield "delete_claim", lambda: cluster.delete_claim(PLACE, claim.name)
    lease = port.LeaseDraft(name=rig.name("heads"), namespace=PLACE, holder="h", annotations={}, at=at)
    yield "lease_annotations", lambda: cluster.lease_annotations(PLACE, lease.name)
    yield "keep_lease", lambda: cluster.keep_lease(lease)
    acts = port.LeaseClaim(
        name=rig.name("acts"), namespace=LEASES, holder="h", seconds=15, transitions=0, acquired=at, at=at, version=""
    )
    yield "claim_lease", lambda: cluster.claim_lease(acts)
    yield "lease_holder", lambda: cluster.lease_holder(LEASES, acts.name)
    made = partial(cluster.lease_holder, LEASES, acts.name)
    yield "claim_lease", lambda: cluster.claim_lease(replace(acts, version=made().version))
    yield "workloads", lambda: cluster.workloads(labels={"a": "b"})
    yield "workload", lambda: of_every_kind(lambda kind: cluster.workload(rig.namespace, kind, "x"))
    yield (
        "label_workload",
        lambda: of_every_kind(lambda k: cluster.label_workload(rig.namespace, k, "x", labels={"a": None})),
    )
    yield (
        "suspend_workload",
        lambda: of_every_kind(lambda k: cluster.suspend_workload(rig.namespace, k, "x", uid="u")),
    )
    yield (
        "exclude_hosts",
        lambda: of_every_kind(lambda k: cluster.exclude_hosts(rig.namespace, k, "x", uid="u", hosts=["h"])),
    )
    command = {"uid": "u", "action": "RestartJob", "key": "k"}
    yield (
        "command_workload",
        lambda: _of_nothing(lambda: cluster.command_workload(rig.namespace, "VolcanoJob", "x", **command)),
    )
    kinds = (port.PREFLIGHT_REPORT, *port.POLICY_KINDS, *MACHINES)
    yield "custom_objects", lambda: [cluster.custom_objects(kind) for kind in kinds]
    yield "serves", lambda: [cluster.serves(kind) for kind in (*port.DEVICE_TAINT_RULES, *port.RESOURCE_SLICES)]
    yield "custom_objects", lambda: cluster.custom_objects(port.RESOURCE_SLICES[0], node=node)
    rule, spec = port.DEVICE_TAINT_RULES[1], {"taint": {"key": "k", "effect": "NoSchedule"}}
    tainted = partial(cluster.create_object, rule, rig.name("taint"), spec, owner=cluster.get_node(node))
    yield "custom_objects", lambda: cluster.custom_objects(rule)
    yield "create_object", lambda: _of_nothing(lambda: (tainted(), tainted()))  # an old server has no such kind
    yield "delete_object", lambda: cluster.delete_object(rule, "", "x", uid="u")
    for kind in (port.REBOOT_NODE, port.GPU_RESET):
        again = partial(cluster.create_object, kind, rig.name("ask"), {"nodeName": node, "force": False})
        yield "create_object", lambda again=again: (again(), again())
    yield "delete_object", lambda: cluster.delete_object(port.NODE_CLAIM, "", "x", uid="u")
    yield "delete_object", lambda: cluster.delete_object(port.MACHINE, "default", "x", uid="u")
    stated = port.StatedCondition(type="Accepted", status="True", reason="Accepted", message="", generation=1)
    yield (
        "state_condition",
        lambda: of_policies(lambda k: cluster.state_condition(k, "x", version="1", condition=stated, at=at)),
    )
    yield "review_token", lambda: cluster.review_token("t", audiences=[])


def _of_nothing(verb):
    with contextlib.suppress(port.NotFound):
        verb()


def test_the_right_to_read_logs_is_given_by_namespace_in_a_file_of_its_own():
    given = {asked.namespace for asked in rbac.rules(rbac.documents()) if asked.resource == "pods/log"}
    assert given == {"default"}
    assert "pods/log" not in rbac.FILES[0].read_text()


def test_the_rules_are_those_that_the_port_uses(http_rig):
    http_rig.node(http_rig.name("gpu"))
    walked = set()
    for verb, act in walk(http_rig):
        act()
        walked.add(verb)
    assert walked == rbac.verbs_of_port()
    rules = set(rbac.rules(rbac.documents()))
    # What is asked in a namespace is allowed by a Role there or by the ClusterRole; one Event is meant to be refused.
    seen = {asked for asked in http_rig.connection.seen if asked.namespace != http_rig.name("other")}
    used = {asked if asked in rules else asked._replace(namespace="") for asked in seen}
    assert used == rules


def test_every_role_is_bound_to_the_portals_accounts():
    documents = rbac.documents()
    accounts = [d["metadata"] for d in documents if d["kind"] == "ServiceAccount"]
    roles = {(d["kind"], d["metadata"]["name"], d["metadata"].get("namespace")) for d in documents if "rules" in d}
    bound = set()
    for document in documents:
        if "roleRef" in document:
            reference = document["roleRef"]
            bound.add((reference["kind"], reference["name"], document["metadata"].get("namespace")))
            fewer = reference["name"].startswith("kcover-portal-read")
            names = ["kcover-portal-read" if fewer else "kcover-portal"]
            # They are of no use to the other processes.
            names += {
                "kcover-portal-pod-logs": ["kcover-portal-read", "kcover-worker", "kcover-web"],
                "kcover-portal-machines": ["kcover-worker"],
                "kcover-portal-lease": ["kcover-watch"],
            }.get(reference["name"], [])
            assert document["subjects"] == [
                {"kind": "ServiceAccount", "name": name, "namespace": "kcover-system"} for name in names
            ]
    assert bound == roles
    assert [account["name"] for account in accounts] == ["kcover-portal", "kcover-portal-read"]


# The real authorizer


@pytest.mark.needs_cluster
@real.needs_assets
@pytest.mark.parametrize(
    "namespace", [PLACE, PREFLIGHT, "kcover-system", "kce-rescue-system", "default", "kube-system"]
)
def test_the_server_reads_the_rules_as_they_are_meant(apiserver, namespace):
    """All that the account may do there: the rules, and what Kubernetes lets everybody ask about himself."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    status = apiserver.portal.demand("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)["status"]
    assert not status["incomplete"]
    assert not any(rule.get("resourceNames") for rule in status["resourceRules"])
    granted = {
        rbac.Asked(verb, group, resource)
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    rules = rbac.rules(rbac.documents())
    meant = {rule._replace(namespace="") for rule in rules if rule.namespace in ("", namespace)}
    about_itself = {asked for asked in granted if asked.resource.startswith("selfsubject")}
    assert granted - about_itself == meant
    assert {asked.verb for asked in about_itself} == {"create"}
    assert {verb for rule in status["nonResourceRules"] for verb in rule["verbs"]} == {"get"}


@pytest.mark.needs_cluster
@real.needs_assets
def test_a_request_outside_the_rules_is_forbidden(apiserver):
    node = apiserver.name("gpu")
    apiserver.node(node)
    apiserver.pod("train", node=node)
    pods = apiserver.place("Pod", apiserver.namespace)
    merge = "application/merge-patch+json"
    label = {"metadata": {"labels": {"a": "b"}}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    }
    for method, path, body, kind in (
        ("PUT", f"/api/v1/nodes/{node}", apiserver.read("Node", node), "application/json"),
        ("DELETE", f"/api/v1/nodes/{node}", None, "application/json"),
        ("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"capacity": {"nvidia.com/gpu": "0"}}}, merge),
        ("DELETE", "/api/v1/nodes", None, "application/json"),
        ("PATCH", f"{pods}/train", label, merge),
        ("DELETE", pods, None, "application/json"),
        ("POST", f"{pods}/train/exec?command=sh", None, "application/json"),
        ("GET", f"{pods}/train/log", None, "application/json"),
        ("GET", "/api/v1/secrets", None, "application/json"),
        ("GET", f"/api/v1/namespaces/{PLACE}/secrets", None, "application/json"),
        ("POST", f"/api/v1/namespaces/{PLACE}/serviceaccounts/kcover-portal/token", {"spec": {}}, "application/json"),
        ("POST", apiserver.place("Job", apiserver.namespace), job, "application/json"),
        ("DELETE", apiserver.place("Namespace", "", apiserver.namespace), None, "application/json"),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": apiserver.name("other")}}, "application/json"),
    ):
        status, answer = apiserver.portal.ask(method, path, body, kind)
        assert (status, answer["reason"]) == (403, "Forbidden"), (method, path, status, answer)
    assert apiserver.read("Node", node)["status"]["capacity"]["nvidia.com/gpu"] == "8"
    spec = port.JobSpec(name="j", namespace=apiserver.namespace, node=node, image="i", command=("reboot",))
    with pytest.raises(port.RefusedByServer, match="Forbidden"):
        apiserver.cluster.ensure_job(spec)
