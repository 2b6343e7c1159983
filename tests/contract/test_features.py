"""The chart's features: one that is off takes its rights away, and the others keep the rights that they use."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kcover_portal.kube import rights as features
from tests.contract import rbac
from tests.contract.rbac import Asked
from tests.contract.test_rbac import PLACE, PREFLIGHT, walk
from tests.deploy import chart
from tests.deploy.test_accounts import rights
from tests.share import in_share

# What each feature is for: the verbs of the port that nothing calls where it is off.
VERBS: dict[str, set[str]] = {
    "actions": {
        *("apply_node", "evict", "delete_pod", "label_workload", "suspend_workload", "exclude_hosts"),
        *("command_workload", "create_object", "delete_object"),
    },
    "rebootJob": set(),
    "pairTests": set(),
    "readEvents": {"list_events", "watch_events"},
    "writeEvents": {"emit"},
    "agentTokens": {"review_token"},
    "claimCheck": {"ensure_claim", "claim_state", "delete_claim"},
    "ledgerLease": {"lease_annotations", "keep_lease"},
    "actionLease": {"lease_holder", "claim_lease"},
    "podLogs": {"pod_log"},
    "policyObjects": {"state_condition"},
    "preflightReports": set(),
    "nvsentinel": set(),
    "clusterApi": set(),
    "karpenter": set(),
    "deviceTaints": {"serves"},
}
OFF_BY_DEFAULT = ("nvsentinel", "clusterApi", "karpenter", "deviceTaints", "actionLease")
MACHINE_GROUPS = ("janitor.dgxc.nvidia.com", "cluster.x-k8s.io", "karpenter.sh", "resource.k8s.io")
# Custom resources and kinds of jobs share verbs. So these features are told apart by what is asked for.
OBJECTS: dict[str, Callable[[Asked], bool]] = {
    "policyObjects": lambda asked: asked.resource.startswith(("rescuepolicies", "warmstandbypolicies")),
    "preflightReports": lambda asked: asked.resource == "preflightreports",
    "actions": lambda asked: (asked.resource, asked.namespace) == ("jobs", PLACE) or asked.group in MACHINE_GROUPS,
    "nvsentinel": lambda asked: asked.group == "janitor.dgxc.nvidia.com",
    "clusterApi": lambda asked: asked.group == "cluster.x-k8s.io",
    "karpenter": lambda asked: asked.group == "karpenter.sh",
    "deviceTaints": lambda asked: asked.group == "resource.k8s.io",
    "rebootJob": lambda asked: (asked.resource, asked.namespace) == ("jobs", PLACE),
    "pairTests": lambda asked: (asked.resource, asked.namespace) == ("jobs", PREFLIGHT),
    "kubeflow": lambda asked: asked.group == "kubeflow.org",
    "batch": lambda asked: asked.group == "batch" and not asked.namespace,
    "leaderWorkerSet": lambda asked: asked.group == "leaderworkerset.x-k8s.io",
    "jobSet": lambda asked: asked.group == "jobset.x-k8s.io",
    "trainer": lambda asked: asked.group == "trainer.kubeflow.org",
    "ray": lambda asked: asked.group == "ray.io",
    "volcano": lambda asked: asked.group in ("batch.volcano.sh", "bus.volcano.sh"),
    "statefulSet": lambda asked: asked.group == "apps",
}
FEATURES = [*VERBS, *chart.KINDS]
SHARES = 4  # of the pairs of features that are off; a run has one, and each feature alone


def account(off: tuple[str, ...]) -> list[dict[str, Any]]:
    """The chart with an account for kubeconfigs, and these features off."""
    features: dict[str, Any] = {"podLogs": ["default"], "jobs": {}} | dict.fromkeys(OFF_BY_DEFAULT, True)
    for name in off:
        if name in chart.KINDS:
            features["jobs"][name] = False
        else:
            features[name] = [] if name == "podLogs" else False
    return chart.render(chart.LEAST | {"kubeconfigAccount": {"create": True}, "features": features})


def granted(manifests: list[dict[str, Any]], *accounts: str) -> set[Asked]:
    return set().union(*(rights(name, manifests) for name in accounts))


@pytest.fixture
def requests(http_rig: Any) -> dict[str, set[Asked]]:
    """What the live client asks for, by the verb of the port."""
    http_rig.node(http_rig.name("gpu"))
    found: dict[str, set[Asked]] = {}
    whole = set(rbac.rules(rbac.documents()))
    for verb, act in walk(http_rig):
        http_rig.connection.seen.clear()
        act()
        seen = {asked for asked in http_rig.connection.seen if asked.namespace != http_rig.name("other")}
        found.setdefault(verb, set()).update(a if a in whole else a._replace(namespace="") for a in seen)
    return found


def test_a_disabled_feature_removes_exactly_its_rights(requests) -> None:
    pairs = [pair for number, pair in enumerate(itertools.combinations(VERBS, 2)) if in_share(number, shares=SHARES)]
    combinations = [(), *((name,) for name in FEATURES), *pairs, tuple(FEATURES)]
    for off in combinations:
        verbs = set(requests) - set().union(*(VERBS.get(name, set()) for name in off))
        used = set().union(*(requests[verb] for verb in verbs))
        gone = [OBJECTS[name] for name in off if name in OBJECTS]
        used = {asked for asked in used if not any(is_for(asked) for is_for in gone)}
        manifests = account(off)
        assert granted(manifests, "kcover-portal") == used, off
        processes = granted(manifests, *(f"kcover-{name}" for name in ("web", "live", "worker", "beat", "watch")))
        assert processes == used, off


def test_the_second_kubeconfig_has_the_rights_that_pages_use(requests) -> None:
    """``VERBS_OF_WEB``: tests/portal/console/test_read_access.py walks the pages with them."""
    used = set().union(*(requests[verb] for verb in (*rbac.VERBS_OF_WEB, "review_token")))
    used = {asked for asked in used if asked.resource != "pods/log" or asked.namespace == "default"}
    assert granted(account(()), "kcover-portal-read") == used


def asked_by(found: Iterable[features.Feature]) -> set[Asked]:
    """What the features need. The chart grants logs by namespace, and the test of rights asks for all of them."""
    needed = {Asked(one.verb, one.group, one.resource, one.namespace) for each in found for one in each.rights}
    return {one._replace(namespace="default") if one.resource == "pods/log" else one for one in needed}


def test_the_test_of_rights_requires_what_the_chart_grants() -> None:
    every = features.features(features.Namespaces())
    whole = account(())
    assert asked_by(every) == granted(whole, "kcover-portal")
    for process in features.PROCESSES:
        assert asked_by(features.of_process(process, every)) == granted(whole, f"kcover-{process}"), process
    switches = {one.name: one for one in every if one.name in FEATURES}
    assert set(FEATURES) - switches.keys() == {"actions"}
    for name, one in switches.items():
        lost = granted(whole, "kcover-portal") - granted(account((name,)), "kcover-portal")
        assert lost == asked_by([one]), name
        assert (one.need == features.Need.OPTIONAL) == (name in (*OFF_BY_DEFAULT, "podLogs"))


def test_every_switch_of_the_chart_is_tested() -> None:
    # Policies give no rights.
    policy = {
        "rebootJobPolicy",
        "rebootJobImage",
        "pairTestPolicy",
        "pairTestImage",
        "pairTestDevices",
        "pairTestsOnControlPlanes",
        "jobs",
    }
    policy |= {"jobChangePolicy", "nodeChangePolicy", "kubeletPolicy"}
    assert set(chart.defaults()["features"]) - policy == set(VERBS)
    assert set(chart.defaults()["features"]["jobs"]) == set(chart.KINDS)


def test_a_portal_that_does_not_manage_its_cluster_has_no_rights_there() -> None:
    assert not [one for one in chart.render(chart.LEAST | {"inCluster": False}) if "rules" in one]
