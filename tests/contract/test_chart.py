"""A real API server takes all that the chart creates, and drops no field of it."""

from typing import Any

import pytest

from tests.contract import admission, apiserver as real
from tests.contract.test_manifests import PLACES, dropped
from tests.deploy import chart

pytestmark = [pytest.mark.needs_cluster, real.needs_assets]
ALL_PLACES = (
    PLACES
    | admission.PLACES
    | {
        "Secret": "/api/v1/namespaces/{}/secrets",
        "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    }
)
DEFINED = {  # by definitions that come with other products
    *("PrometheusRule", "ServiceMonitor", "PodMonitor"),
    *("HTTPRoute", "SecurityContextConstraints"),
}
OPENSHIFT = {"openshift": {"enabled": True}}
WHOLES = chart.WHOLES | {"openshift": chart.LEAST | OPENSHIFT, "openshift-trial": chart.TRIAL | OPENSHIFT}
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def objects(rig: real.ApiServerRig, name: str) -> list[dict[str, Any]]:
    """What the chart creates of the kinds that the server has; their namespaces exist."""
    found = [one for one in chart.render(WHOLES[name]) if one["kind"] not in DEFINED]
    for namespace in {one["metadata"].get("namespace") for one in found} - {None}:
        status, answer = rig.admin.ask("POST", PLACES["Namespace"], space(namespace))
        assert status in (201, 409), answer
    return found


def space(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}


@pytest.mark.parametrize("name", WHOLES)
def test_each_object_is_taken_whole(apiserver: real.ApiServerRig, name: str) -> None:
    for one in objects(apiserver, name):
        meta = one["metadata"]
        place = ALL_PLACES[one["kind"]].format(meta.get("namespace"), policy="policy/v1")
        how = "dryRun=All&fieldValidation=Strict"
        status, kept = apiserver.admin.ask("POST", f"{place}?{how}", one)
        if status == 409:  # of deploy/rbac.yaml
            status, kept = apiserver.admin.ask("PUT", f"{place}/{meta['name']}?{how}", one)
        assert status < 300, (one["kind"], meta["name"], kept)
        assert list(dropped({key: part for key, part in one.items() if key != "stringData"}, kept)) == [], meta["name"]


@pytest.mark.parametrize("name", ["default", "trial", "openshift", "everything"])
def test_the_portals_pods_are_admitted_where_pods_are_restricted(apiserver: real.ApiServerRig, name: str) -> None:
    """Only the agent needs more; it has the rights of its node."""
    restricted = apiserver.name("restricted")
    apiserver.admin.demand("POST", PLACES["Namespace"], space(restricted, RESTRICTED))
    tried = 0
    for one in objects(apiserver, name):
        if one["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = one["spec"]["template"]
            template["spec"].pop("priorityClassName", None)  # the class is part of the chart
            claims = [claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ())]
            volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
            template["spec"]["volumes"] = template["spec"].get("volumes", []) + volumes
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            pod["metadata"] = {**template["metadata"], "generateName": "x-"}
            apiserver.admin.demand("POST", f"{PLACES['Pod'].format(restricted)}?dryRun=All", pod)
            tried += 1
    assert tried >= 5
