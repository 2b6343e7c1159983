"""The worst that each account of the chart can do, computed from the rendered roles, is what is written here."""

import copy
from typing import Any, Final

import pytest

from tests.contract.rbac import Asked
from tests.deploy import chart
from tests.deploy.test_accounts import rights

CHANGES: Final = {"create", "patch", "update"}
# The right to create or change one of these is the right to choose what a pod runs.
TEMPLATES: Final = {
    *(("", one) for one in ("pods", "replicationcontrollers", "podtemplates", "pods/exec", "pods/ephemeralcontainers")),
    *(("apps", one) for one in ("deployments", "daemonsets", "statefulsets", "replicasets")),
    *(("batch", one) for one in ("jobs", "cronjobs")),
    ("batch.volcano.sh", "jobs"),
    ("jobset.x-k8s.io", "jobsets"),
    ("leaderworkerset.x-k8s.io", "leaderworkersets"),
    ("trainer.kubeflow.org", "trainjobs"),
    *(("ray.io", one) for one in ("rayclusters", "rayjobs")),
    *(("kubeflow.org", f"{one}jobs") for one in ("pytorch", "tf", "mpi", "mx", "xgboost", "paddle")),
}
# With one of these rights an account can act as another one.
OTHERS: Final = {("create", "serviceaccounts/token"), ("impersonate", "users"), ("bind", "clusterroles")}
OTHERS_GROUPS: Final = {"rbac.authorization.k8s.io", "admissionregistration.k8s.io", "certificates.k8s.io"}
TRAINING: Final = sorted(
    f"{resource}.{group}" for group, resource in TEMPLATES if group not in ("", "apps") and resource != "cronjobs"
)
BOUND: Final = [
    *(f"patch {one} anywhere (job-change policy)" for one in TRAINING),
    "patch nodes anywhere (node-change policy)",
]
OWN_JOBS: Final = [
    "create jobs.batch in kcover-jobs (reboot-job policy)",
    "create jobs.batch in kcover-preflight (pair-test policy)",
]
ACCOUNTS: Final = {
    "kcover-portal": sorted([*OWN_JOBS, *BOUND]),
    "kcover-portal-read": [],
    "kcover-web": [],
    "kcover-live": [],
    "kcover-watch": [],
    "kcover-worker": sorted([*OWN_JOBS, *BOUND]),
    "kcover-beat": [],
}


def worst(account: str, manifests: list[dict[str, Any]]) -> list[str]:
    """What the account may do that runs a pod, changes a node, reads a secret or becomes another account.

    Each with the policy that bounds it.
    """
    bounds = bounded(manifests)
    found = []
    for one in rights(account, manifests):
        where = f"in {one.namespace}" if one.namespace else "anywhere"
        name = f"{one.resource}.{one.group}".removesuffix(".")
        is_pod = one.verb in CHANGES and (one.group, one.resource) in TEMPLATES
        is_node = one.verb in CHANGES and one.resource == "nodes"
        is_secret = one.resource == "secrets"
        is_other = (one.verb, one.resource) in OTHERS or one.group in OTHERS_GROUPS or "*" in one
        if is_pod or is_node or is_secret or is_other:
            bound = next((policy for policy, is_about in bounds.items() if is_about(one)), "")
            found.append(f"{one.verb} {name} {where}" + (f" ({bound} policy)" if bound else ""))
    return sorted(found)


def bounded(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """The admission policies that deny, by name, each with the requests that it is about."""
    kinds = chart.of_kind(manifests, "ValidatingAdmissionPolicy")
    binding = chart.of_kind(manifests, "ValidatingAdmissionPolicyBinding")
    found = {}
    kinds.pop("kcover-kubelet")  # it bounds no account of the chart
    for name, policy in kinds.items():
        assert binding[name]["spec"]["validationActions"] == ["Deny"]
        assert policy["spec"]["failurePolicy"] == "Fail"
        found[name.removeprefix("kcover-")] = lambda asked, spec=policy["spec"]: is_about(spec, asked)
    return found


def is_about(spec: dict[str, Any], asked: Asked) -> bool:
    constraints = spec["matchConstraints"]
    namespace = constraints.get("namespaceSelector", {}).get("matchLabels", {}).get("kubernetes.io/metadata.name")
    if namespace not in (None, asked.namespace):
        return False
    operation = {"create": "CREATE", "patch": "UPDATE", "update": "UPDATE"}.get(asked.verb)
    return any(
        operation in rule["operations"] and asked.group in rule["apiGroups"] and asked.resource in rule["resources"]
        for rule in constraints["resourceRules"]
    )


@pytest.fixture(scope="module")
def everything() -> list[dict[str, Any]]:
    return chart.render(chart.EVERYTHING)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_worst_of_each_account(everything: list[dict[str, Any]], account: str) -> None:
    assert worst(account, everything) == ACCOUNTS[account]


def test_every_account_is_written_down(everything: list[dict[str, Any]]) -> None:
    made = set(chart.of_kind(everything, "ServiceAccount"))
    assert {name for name in made if rights(name, everything)} <= ACCOUNTS.keys()
    # The agents run on the nodes and need nothing of the API server.
    assert not rights("kcover-agent", everything)


def test_an_excessive_right_is_found(everything: list[dict[str, Any]]) -> None:
    for group, resource, verb in (("apps", "statefulsets", "patch"), ("", "secrets", "get"), ("*", "*", "*")):
        more = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        changed = copy.deepcopy(everything)
        chart.of_kind([one for one in changed if "rules" in one], "ClusterRole")["kcover-worker"]["rules"].append(more)
        assert worst("kcover-worker", changed) != ACCOUNTS["kcover-worker"]


def test_the_portal_may_be_limited_to_namespaces() -> None:
    limited = chart.render(chart.EVERYTHING | {"namespaces": {"work": ["train", "research"]}})
    for account in ("kcover-portal", "kcover-worker"):
        held = rights(account, limited)
        acts = {one for one in held if one.verb in (*CHANGES, "delete") and (one.group, one.resource) != ("", "nodes")}
        own = {"kcover-jobs", "kcover-preflight", "kce-rescue-system", "default", "kcover-lease"}
        cluster_wide = {(one.group, one.resource) for one in acts if not one.namespace}
        assert {one.namespace for one in acts} - own == {"", "train", "research"}
        assert not cluster_wide & {("", "pods"), ("", "pods/eviction"), *TEMPLATES, ("bus.volcano.sh", "commands")}
        assert Asked("delete", "", "pods", "train") in held
        assert Asked("create", "", "pods/eviction", "research") in held
        assert Asked("patch", "kubeflow.org", "pytorchjobs", "train") in held
        assert Asked("list", "kubeflow.org", "pytorchjobs") in held
    # Together they may do there what they may do everywhere without the limit.
    everywhere = {one._replace(namespace="") for one in rights("kcover-worker", chart.render(chart.EVERYTHING))}
    assert {one._replace(namespace="") for one in rights("kcover-worker", limited)} == everywhere
