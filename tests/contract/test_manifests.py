"""A real API server accepts the manifests in deploy/ and drops no field of them."""

from pathlib import Path

import pytest

from tests.contract import apiserver as real, over_http
from tests.deploy.manifests import documents

pytestmark = [pytest.mark.needs_cluster, real.needs_assets]

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted((*DEPLOY.glob("agent/*.yaml"), *DEPLOY.glob("portal/*.yaml")))
DOCUMENTS = documents(*FILES)
PLACES = over_http.PLACES | {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Service": "/api/v1/namespaces/{}/services",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


def dropped(sent, kept, at=""):
    """What was sent and did not come back: servers before 1.25 leave out in silence what they do not know."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            yield from dropped(value, kept.get(name), f"{at}.{name}")
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for number, pair in enumerate(zip(sent, kept, strict=True)):
            yield from dropped(*pair, f"{at}[{number}]")
    elif sent != kept and str(sent) != kept and (sent, kept) != ([], None):  # a quantity may be sent as a number
        yield f"{at}: {sent!r} became {kept!r}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_each_manifest_is_taken_whole(apiserver, document):
    if document["kind"] == "PodDisruptionBudget":  # 1.20 has the older name only; the fields are the same
        document = document | {"apiVersion": apiserver.policy}
    namespace = document["metadata"].get("namespace", "default")
    place = PLACES[document["kind"]].format(namespace, policy=apiserver.policy)
    kept = apiserver.admin.demand("POST", f"{place}?dryRun=All", document)
    assert list(dropped(document, kept)) == []
