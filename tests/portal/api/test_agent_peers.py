"""GET /api/v1/agent/peers: the neighbours that an agent pings."""

from datetime import datetime

import pytest

from kcover_portal.accounts import services as accounts
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import neighbours
from tests.portal.api.door import Door

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def nodes(east: Cluster, now: datetime) -> list[str]:
    """40 GPU nodes in a circle of names. gpu-03 is not ready, gpu-04 has no address, gpu-05 no GPU."""
    names = [f"gpu-{place:02}" for place in range(40)]
    Node.objects.bulk_create(
        Node(cluster=east, name=name, address=f"10.0.0.{place}", in_cluster=True, ready=True, gpus=8, created_at=now)
        for place, name in enumerate(names)
    )
    Node.objects.filter(name="gpu-03").update(ready=False)
    Node.objects.filter(name="gpu-04").update(address="")
    Node.objects.filter(name="gpu-05").update(gpus=0)
    return names


def test_the_next_32_nodes_in_the_circle_of_names(east: Cluster, nodes: list[str]) -> None:
    def expected(name: str) -> list[str]:
        place = nodes.index(name)
        others = [*range(place + 1, 40), *range(place)]
        return [f"10.0.0.{other}" for other in others if other not in (3, 4, 5)][:32]

    for name in ("gpu-00", "gpu-20", "gpu-39"):
        assert neighbours.addresses(east, name) == expected(name)
        assert neighbours.next_in(neighbours.circle(east), name) == expected(name)


def test_an_agent_gets_the_peers_of_its_own_node(east: Cluster, nodes: list[str], now: datetime) -> None:
    _, secret = accounts.make_token("agent", cluster=east, node="gpu-00", created_by="test", now=now)
    answer = Door(secret).call("GET", "peers")
    assert (answer.status, len(answer.body["peers"])) == (200, 32)
    assert answer.body["peers"][:2] == ["10.0.0.1", "10.0.0.2"]


def test_an_enrolment_token_gets_no_peers(east: Cluster, nodes: list[str], now: datetime) -> None:
    _, secret = accounts.make_token("agent", cluster=east, created_by="test", now=now)
    Door(secret).call("GET", "peers").problem(403)
