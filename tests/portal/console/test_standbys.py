"""Warm standbys on the console: what is ready, who stands in for whom, where none was free; and the overview of it."""

import pytest
from django.utils import timezone

from kcover.decisions import guards, standby
from kcover_portal.console.reads import standbys as reads
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services
from tests.portal.console.test_approvals import text, words
from tests.portal.rescue.test_actions_standby import POLICY, SPARE
from tests.portal.rescue.world import NODE, World

CHOICE = """
apiVersion: rescue.ksyun.com/v1
kind: WarmStandbyPolicy
metadata: {name: choice}
spec: {matches: [{originNode: {pool: train}, targetNode: {pool: spare}}]}
"""


@pytest.fixture
def spares(db: None):
    """A node that fails, and two spares, of which one is not Ready."""
    world = World(policy=POLICY)
    world.now = timezone.now()
    world.kube.label_node(NODE, {"pool": "train"})
    world.kube.add_node("spare-1", labels=SPARE, unschedulable=True, gpus=8)
    world.kube.add_node("spare-2", labels=SPARE, unschedulable=True, gpus=8, ready=False)
    world.sync()
    yield world
    world.uninstall()


def figures(world: World) -> tuple[int, int, int, int]:
    found = reads.of([world.cluster], now=world.now)
    return found.ready, found.reserved, found.in_service, found.unfit


def test_a_spare_goes_from_ready_into_service_and_back(person, spares: World):
    client = person("viewer")
    assert figures(spares) == (1, 0, 0, 1)
    page = words(client.get("/standbys/"))
    assert "1 ready, 0 reserved, 0 in service, 1 unavailable" in page
    assert "Standby spare-2 is not Ready." in page

    spares.fault(62)
    spares.work()
    spares.sync()
    assert figures(spares) == (0, 0, 1, 1)
    page = words(client.get("/standbys/"))
    assert "spare-1" in page
    assert "In service gpu-1" in page
    assert "No standby is left in this pool." in page

    services.request(spares.node("spare-1"), "release", actor="user:omar", reason="repaired", now=spares.now)
    spares.work()
    spares.sync()
    assert figures(spares) == (1, 0, 0, 1)
    assert "Recently released" in words(client.get("/standbys/"))


def test_a_shortage_is_shown_with_its_reasons(person, spares: World):
    spares.kube.label_node("spare-1", {standby.LABEL: None})
    spares.sync()
    spares.fault(62)
    spares.work()
    page = words(person("viewer").get("/standbys/"))
    assert "Shortages" in page
    assert "None of 1 standbys is available. The plan continues without one. Standby spare-2 is not Ready." in page


def test_the_standby_rules_are_listed_with_their_policy(person, spares: World):
    client = person("viewer")
    assert "No rules: any free standby" in words(client.get("/standbys/"))
    policies.apply(CHOICE, author="test", reason="", now=spares.now)
    page = text(client.get("/standbys/"))
    assert 'href="/standby-policies/choice/"' in page
    assert "pool=train" in page
    assert "pool=spare" in page


def test_without_standbys_the_page_shows_how_to_add_one(person, world: World):
    assert "kcover.io/standby=true" in text(person("viewer").get("/standbys/"))


def test_standbys_of_another_cluster_are_not_seen(person, spares: World, now):
    west = type(spares.cluster).objects.create(name="west", created_at=now)
    assert "spare-1" not in text(person("viewer", cluster=west).get("/standbys/"))


# ------------------------------------------------------------------------------------------------------------- overview


def test_the_overview_counts_standbys_once_there_are_any(person, spares: World):
    assert "1 standbys ready" in words(person("viewer").get("/"))


def test_the_overview_shows_no_standbys_where_none_exist(person, world: World):
    assert "standbys ready" not in words(person("viewer").get("/"))


def test_the_overview_shows_how_much_of_breaker_and_budget_is_left(person, world: World):
    cluster_settings.set_guards(world.cluster, {"budget": {"limit": 3}}, actor="user:t", reason="t", now=world.now)
    page = words(person("viewer").get("/"))
    assert "Safety limits" in page
    assert "0 of 10 isolated within 5 min" in page
    assert "0 of 3 isolated or in rescue" in page


def test_a_storm_is_the_first_need(person, world: World):
    world.fault(95)
    world.work()
    incidents.keep_storm(
        world.cluster,
        guards.Symptom(trait="code", kind="xid", value="95", nodes=2),
        nodes=["gpu-1", "gpu-2"],
        now=world.now,
    )
    page = words(person("viewer").get("/"))
    needs = page[page.index("Needs attention now") :]
    assert needs.index("Storm: Xid 95 on 2 nodes") < needs.index("Xid 95 on gpu-1: not handled yet")
    assert "no decision yet" not in needs


def test_standbys_are_filtered_and_exported(person, spares: World):
    client = person("viewer")
    page = words(client.get("/standbys/?state=unfit"))
    assert "spare-2" in page
    assert "spare-1" not in page
    assert "1 ready, 0 reserved, 0 in service, 1 unavailable" in page, "of the pool, not of the filter"
    assert "spare-" not in words(client.get("/standbys/?q=none-such"))
    assert "state=weird" in words(client.get("/standbys/?state=weird"))
    exported = client.get("/export/standbys.csv?q=spare-1")
    head, row = b"".join(exported.streaming_content).decode().splitlines()
    assert head == "cluster,pool,node,state,because"
    assert row.split(",")[2:4] == ["spare-1", "ready"]
    assert client.get("/export/standbys.csv?state=weird").status_code == 400
