"""Search by name and number, in the box and in the palette, within what a person may see."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster, Gpu
from kcover_portal.incidents.models import Incident, JobSeen
from kcover_portal.parts.models import Part, Placement
from kcover_portal.rescue.models import Rescue
from tests.portal.rescue.world import World

QUERIES = 9  # the session, the person, their roles; one for each kind of hit, and the label keys of racks


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


ON_NODE = {
    "drain": "/nodes/c1/gpu-1/drain/",
    "cordon": "/nodes/c1/gpu-1/cordon/",
    "uncordon": "/nodes/c1/gpu-1/uncordon/",
    "reboot": "/nodes/c1/gpu-1/reboot/",
    "release": "/nodes/c1/gpu-1/release/",
    "validate": "/checks/validations/new/?cluster=c1&host=gpu-1",
    "check": "/checks/new/?cluster=c1&host=gpu-1",
    "maintenance": "/maintenance/new/?cluster=c1&host=gpu-1",
    "repair": "/repairs/new/c1/gpu-1/",
}


@pytest.mark.parametrize(("word", "page"), ON_NODE.items())
def test_a_verb_and_a_node_lead_to_the_preview_of_the_act(person, stocked: World, word: str, page: str):
    client = person("operator")
    for text in (f"{word} gpu-1", f"{word[:4]} PU-1", f"gpu-1 {word}"):
        [hit] = client.get("/search/found.json", {"q": text}).json()["hits"]
        assert (hit["kind"], hit["page"], hit["asks"]) == ("act", page, True)
    assert client.get("/search/", {"q": f"{word} gpu-1"}).url == page
    assert client.get(page).status_code == 200
    assert not Rescue.objects.filter(node__name="gpu-1").exclude(pk=7079).exists()
    assert "act" not in {kind for kind, _label, _page in (*hits(client, word), *hits(client, f"{word} "))}
    assert hits(person("viewer"), f"{word} gpu-1") == []


def test_enter_means_a_node_only_if_the_text_names_it_and_no_other(person, stocked: World):
    other = Cluster.objects.create(name="other", created_at=stocked.now)
    client = person("operator")

    def sure(text: str) -> list[bool]:
        return [hit["sure"] for hit in client.get("/search/found.json", {"q": text}).json()["hits"]]

    assert sure("drain GPU-1") == [True]
    assert sure("drain gpu-") == [False], "it names no node"
    other.nodes.create(name="gpu-1", created_at=stocked.now)
    assert sure("drain gpu-1") == [False, False], "which of the two?"


def test_acts_are_said_in_chinese_without_a_space(person, stocked: World):
    client = person("operator")
    client.cookies["django_language"] = "zh-hans"
    assert hits(client, "排空gpu-1") == hits(client, "gpu-1 排空") == [("act", "排空 gpu-1", ON_NODE["drain"])]
    assert hits(client, "解除封锁 gpu-1") == [("act", "解除封锁 gpu-1", ON_NODE["uncordon"])]
    assert [page for _kind, _label, page in hits(client, "自愈gpu-1")] == [ON_NODE["drain"], ON_NODE["reboot"]]


def test_acts_end_where_the_right_ends(person, stocked: World):
    client = person("operator", cluster=Cluster.objects.create(name="other", created_at=stocked.now))
    assert [hits(client, f"{word} gpu-1") for word in ON_NODE] == [[]] * len(ON_NODE)
    assert [page for _kind, _label, page in hits(person("operator"), "rescue gpu-1")] == [
        ON_NODE["drain"],
        ON_NODE["reboot"],
    ]
    assert hits(person("operator"), "rescue 7079") == [("rescue", "Rescue 7079", "/rescues/7079/")]


def test_a_rack_is_the_list_of_its_nodes(person, stocked: World):
    node = stocked.node()
    node.labels = {**node.labels, "topology.kubernetes.io/rack": "r-07", "floor": "r-07"}
    node.save(update_fields=["labels"])
    page = "/nodes/?cluster=c1&label=topology.kubernetes.io%2Frack%3Dr-07"
    assert hits(person("viewer"), "R-07") == [("rack", "r-07", page)]
    assert [row[0].name for row in person("viewer").get(page).context["rows"]] == ["gpu-1"]
    stocked.cluster.topology = {"rack": "floor"}
    stocked.cluster.save(update_fields=["topology"])
    assert hits(person("viewer"), "r-07") == [("rack", "r-07", "/nodes/?cluster=c1&label=floor%3Dr-07")]
    other = person("viewer", cluster=Cluster.objects.create(name="other", created_at=stocked.now))
    assert hits(other, "r-07") == []


def test_the_palette_finds_acts_by_their_words_alone(person, make):
    world = make()
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
    world.fault(62)
    world.work()
    asked = f"/rescues/{world.rescue().pk}/approve/"
    client = person("approver")
    assert [hit[2] for hit in hits(client, "approve")] == [asked]
    assert [hit[2] for hit in hits(person("viewer"), "approve")] == []
    client.post("/preferences/", {"language": "zh-hans", "next": "/"})
    assert [hit[2] for hit in hits(client, "批准")] == [asked]
    words = {entry.href: entry.words for entry in client.get("/account/").context["palette"]}
    assert "cordon" in words["/nodes/"]
    assert "批准" in words["/approvals/"]
