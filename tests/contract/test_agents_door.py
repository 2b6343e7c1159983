"""The agents' endpoint with service account tokens, on every kind of API server."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from kcover_portal.api.agent import app
from kcover_portal.api.agent.jwt_claims import AUDIENCE
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import connections
from tests.contract.rigs import Rig
from tests.portal.api.door import Answer, Door, report

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cluster(rig: Rig) -> Iterator[str]:
    app.known_accounts.forget()
    row = Cluster.objects.create(name="east", created_at=datetime.now(UTC))
    uninstall = connections.install(row.pk, rig.cluster)
    yield row.name
    uninstall()


def send(rig: Rig, cluster: str, *, node: str, audience: str = AUDIENCE) -> Answer:
    """A report about ``node`` by a pod that runs on the rig's node."""
    here = rig.name("gpu")
    if rig.read("Node", here) is None:
        rig.node(here)
        meta = {"name": "agent", "namespace": rig.namespace}
        rig.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        rig.pod("agent", node=here, account="agent")
    pod = rig.read("Pod", "agent", namespace=rig.namespace)
    assert pod is not None
    door = Door(rig.token("agent", audience=audience, pod=pod))
    return door.report(report(node=node), X_Kcover_Cluster=cluster)


def test_the_agents_pod_speaks_for_its_node(rig: Rig, cluster: str, settings) -> None:
    settings.KCOVER_SERVICE_ACCOUNTS = [f"{rig.namespace}/agent"]
    assert send(rig, cluster, node=rig.name("gpu")).status == 202
    assert "This token belongs to node" in send(rig, cluster, node=rig.name("other")).problem(403)
    assert list(Node.objects.values_list("name", flat=True)) == [rig.name("gpu")]


def test_another_pod_and_another_audience_may_not_report(rig: Rig, cluster: str, settings) -> None:
    assert "may not report for nodes" in send(rig, cluster, node=rig.name("gpu")).problem(403)
    settings.KCOVER_SERVICE_ACCOUNTS = [f"{rig.namespace}/agent"]
    assert "audience" in send(rig, cluster, node=rig.name("gpu"), audience="vault").problem(401)
    assert not Node.objects.exists()
