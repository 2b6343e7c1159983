"""Search by name and number, in the box and in the palette, within what a person may see."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.fleet.models import Cluster, Gpu
from kcover_portal.incidents.models import Incident, JobSeen
from kcover_portal.parts.models import Part, Placement
from kcover_portal.rescue.models import Rescue
from tests.portal.rescue.world import World

QUERIES = 7  # the session, the person, their roles; one for each kind of hit


@pytest.fixture
def stocked(world: World) -> World:
    node = world.node()
    Gpu.objects.create(node=node, index=3, uuid="GPU-aa11bb22", seen_at=world.now)
    part = Part.objects.create(kind="gpu", serial="1320021077", first_seen_at=world.now)
    Placement.objects.create(part=part, cluster=world.cluster, node=node, node_name=node.name, since=world.now)
    JobSeen.objects.create(node=node, job="ml/llama-70b", at=world.now)
    about = {"cluster": world.cluster, "node": node, "opened_at": world.now}
    Incident.objects.create(pk=7079, kind="xid", code="79", last_at=world.now, **about)
    Rescue.objects.create(pk=7079, origin="manual", **about)
    return world


def hits(client, text: str) -> list[tuple[str, str, str]]:
    found = client.get("/search/found.json", {"q": text}).json()["hits"]
    return [(hit["kind"], hit["label"], hit["page"]) for hit in found]


def test_the_palette_finds_each_thing_by_name_or_number(person, stocked: World):
    client, part = person("viewer"), Part.objects.get()
    assert hits(client, "PU-1") == [("node", "gpu-1", "/nodes/c1/gpu-1/")]
    assert hits(client, "aa11") == [("gpu", "GPU-aa11bb22", "/nodes/c1/gpu-1/")]
    assert hits(client, "1320021") == [("part", "1320021077", f"/parts/{part.pk}/")]
    assert hits(client, "llama") == [("job", "ml/llama-70b", "/jobs/?cluster=c1&namespace=ml")]
    assert hits(client, "rescue 7079") == [("rescue", "Rescue 7079", "/rescues/7079/")]
    assert hits(client, "incident #7079") == [("incident", "Incident 7079", "/incidents/7079/")]
    assert [kind for kind, _label, _page in hits(client, "#7079")] == ["rescue", "incident"]
    assert hits(client, "XID 79") == [("code", "Xid 79", "/incidents/?kind=xid&code=79")]
    assert ("code", "SXid 20034", "/incidents/?kind=sxid&code=20034") in hits(client, "20034")
    assert ("code", "Xid 79", "/incidents/?kind=xid&code=79") in hits(client, "fallen off the bus")
    assert hits(client, "") == hits(client, "9" * 19) == []


def test_rows_of_another_cluster_are_not_found(person, stocked: World):
    other = person("viewer", cluster=Cluster.objects.create(name="other", created_at=stocked.now))
    for text in ("gpu-1", "aa11", "1320021", "llama", "rescue 7079", "incident 7079"):
        assert hits(other, text) == [], text


def test_the_box_leads_to_the_one_thing_and_lists_several(person, stocked: World):
    client = person("viewer")
    assert client.get("/search/", {"q": "rescue 7079"}).url == "/rescues/7079/"
    assert client.get("/search/", {"q": "aa11bb"}).url == "/nodes/c1/gpu-1/"
    assert client.get("/search/", {"q": "no such"}).url == "/nodes/?q=no+such"
    page = client.get("/search/", {"q": "7079"})
    assert [hit.page for hit in page.context["hits"]] == ["/rescues/7079/", "/incidents/7079/"]


def test_a_search_costs_the_same_for_one_row_and_for_three(person, stocked: World):
    client, costs = person("viewer"), []
    for number in (1, 3):
        for index in range(1, number):
            stocked.kube.add_node(f"gpu-{index + 1}", gpus=8)
            stocked.sync()
            Gpu.objects.create(node=stocked.node(), index=index, uuid=f"GPU-{index}", seen_at=stocked.now)
            JobSeen.objects.create(node=stocked.node(), job=f"gpu/{index}", at=stocked.now)
        with CaptureQueriesContext(connection) as queries:
            client.get("/search/found.json", {"q": "gpu"})
        costs.append(len(queries))
    assert costs == [QUERIES, QUERIES]
