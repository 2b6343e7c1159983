"""What the page of a node shows of its agent's reports, and its link to its rescues."""

import json
from datetime import datetime
from typing import Any

import pytest

from kcover.faults.fault import Check
from kcover_portal.console.reads import agent_report
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.rescue.models import Rescue
from tests.portal.incidents.conftest import incoming, report
from tests.portal.parts.conftest import inventory

PAGE = "/nodes/west/gpu-1/"
STATEMENTS = 4  # the node with its agent, its other serial numbers, its GPUs, its check results


@pytest.fixture
def west(db: None, now: datetime) -> Cluster:
    return Cluster.objects.create(name="west", created_at=now)


def tell(west: Cluster, now: datetime, gpus: int) -> None:
    checks = tuple(Check(name="ecc", device=f"GPU-{n}", status="good", value=float(n)) for n in range(gpus))
    said: dict[str, Any] = {
        "inventory": inventory(*map(str, range(gpus)), machine="M1", board="B1", nics=("N1",)),
        "checks": checks,
    }
    incidents.ingest([incoming(west, report(node="gpu-1", now=now, **said), at=now)], now=now)


@pytest.mark.parametrize("gpus", [1, 3])
def test_the_stored_parts_of_the_report_are_shown_as_the_agent_sent_them(west, now, gpus, django_assert_num_queries):
    tell(west, now, gpus)
    with django_assert_num_queries(STATEMENTS):
        found = agent_report.of(Node.objects.select_related("agent").get())
    assert found is not None
    at, parts = found[0], json.loads(found[1])
    assert at == now
    assert [gpu["serial"] for gpu in parts["inventory"]["gpus"]] == [str(n) for n in range(gpus)]
    assert [check["value"] for check in parts["checks"]] == list(range(gpus))
    assert (parts["inventory"]["machine_serial"], parts["inventory"]["nics"][0]["serial"]) == ("M1", "N1")
    assert (parts["node"], parts["agent"]["version"]) == ("gpu-1", "1.0.0")


def test_the_report_is_fetched_when_it_is_opened_by_those_who_see_the_node(west, now, person):
    tell(west, now, 1)
    client = person("viewer")
    assert f'hx-get="{PAGE}report/"' in client.get(PAGE).content.decode()
    shown = client.get(f"{PAGE}report/")
    assert json.loads(shown.context["report"])["inventory"]["driver"] == "580"
    assert "data-copy=" in shown.content.decode()
    other = Cluster.objects.create(name="east", created_at=now)
    assert person("viewer", cluster=other).get(f"{PAGE}report/").status_code == 404
    Node.objects.create(cluster=other, name="mute", created_at=now)
    assert client.get("/nodes/east/mute/report/").status_code == 404
    assert "agent-report" not in client.get("/nodes/east/mute/").content.decode()


def test_the_page_links_to_the_rescues_of_the_node_with_their_number(west, now, person):
    tell(west, now, 1)
    client = person("viewer")
    assert 'id="node-rescues"' not in client.get(PAGE).content.decode()
    nodes = [Node.objects.get(), Node.objects.create(cluster=west, name="gpu-2", created_at=now)]
    for node in (nodes[0], nodes[0], nodes[1]):
        times = {"opened_at": now, "closed_at": now}
        Rescue.objects.create(
            cluster=west, node=node, origin="manual", requested_by="user:x", state="succeeded", **times
        )
    page = client.get(PAGE)
    assert page.context["rescues"] == 2
    assert "/rescues/?cluster=west&amp;node=gpu-1" in page.content.decode()
    assert client.get("/rescues/?cluster=west&node=gpu-1").context["page"].paginator.count == 2
