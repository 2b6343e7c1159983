"""The frame of all pages: the groups of the navigation, and the strip that says what the automation does."""

from datetime import timedelta
from itertools import groupby

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover.decisions import guards
from kcover_portal.fleet import services
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from tests.portal.console import pools
from tests.portal.console.test_bounded import maintain, set_guards
from tests.portal.rescue.world import World

OPERATE = ["overview", "incidents", "rescues", "approvals", "jobs", "safety", "reports"]
FLEET = ["nodes", "parts", "repairs", "standbys", "check-runs", "preflight-runs"]


def groups(client) -> dict[str, list[str]]:
    places = client.get("/account/").context["places"]
    return {str(group): [place.page for place in some] for group, some in groupby(places, key=lambda one: one.group)}


@pytest.mark.parametrize(
    ("role", "configure", "admin"),
    [
        ("viewer", ["policies", "sources"], ["audit", "system"]),
        ("admin", ["policies", "sources", "notifications"], ["audit", "system", "access"]),
    ],
)
def test_the_navigation_has_four_groups_with_what_a_person_may_open(
    person, world: World, role: str, configure: list[str], admin: list[str]
):
    assert groups(person(role)) == {"Operate": OPERATE, "Fleet": FLEET, "Configure": configure, "Admin": admin}


def signs(client) -> list[str]:
    return [sign.text for sign in client.get("/account/").context["banner"].signs]


def test_the_strip_says_the_mode_while_all_is_well_and_where_it_differs(person, world: World):
    client = person("viewer")
    assert signs(client) == ["Enforcing"]
    assert 'id="mode-strip"' in client.get("/nodes/", headers={"HX-Request": "true"}).content.decode()
    for name in ("c2", "c3", "c4"):
        cluster = Cluster.objects.create(name=name, created_at=world.now)
    services.pause(cluster=cluster, reason="r", actor="user:t", now=world.now)
    assert signs(client) == ["c4: Paused", "3 clusters: Enforcing"]
    assert signs(person("viewer", cluster=world.cluster)) == ["Enforcing"]
    services.pause(cluster=None, reason="r", actor="user:t", now=world.now)
    assert signs(client) == ["Paused"]


def test_the_strip_names_what_blocks_before_what_works(person, world: World):
    set_guards(world, breaker={"limit": 1}, storm={"enabled": False})
    world.fault(62)
    world.work()
    for _ in range(2):
        maintain(world)
    client = person("viewer")
    assert signs(client) == ["c1: Breaker open", "c1: Maintenance", "Enforcing"]
    assert "c1: Breaker open" in signs(pools.bound("vera", "viewer", world.cluster, "a", world.now)[1]), (
        "without its numbers"
    )
    page = client.get("/nodes/").content.decode()
    assert 'class="mode-strip tone-bad"' in page


def test_the_strip_costs_no_statement_more_for_more_clusters(person, world: World):
    client, costs = person("viewer"), []
    client.get("/account/")
    for number in (0, 3):
        for one in range(number):
            Cluster.objects.create(name=f"d{one}", created_at=world.now)
        with CaptureQueriesContext(connection) as asked:
            client.get("/account/")
        costs.append(len(asked))
    assert costs[0] == costs[1]


def test_who_sees_a_part_of_a_cluster_learns_of_a_storm_without_its_nodes(person, world: World):
    symptom = guards.Symptom(trait="code", kind="xid", value="62", nodes=3)
    storm, _ = incidents.keep_storm(world.cluster, symptom, nodes=["gpu-1", "gpu-2"], now=world.now)
    _, client = pools.bound("vera", "viewer", world.cluster, "a", world.now)
    assert signs(client) == ["c1: Storm", "Enforcing"]
    page = client.get("/frame/").content.decode()
    assert f"/incidents/{storm.pk}/" not in page
    assert "Xid 62" not in page
    assert f"/incidents/{storm.pk}/" in person("viewer").get("/frame/").content.decode()


def test_maintenance_of_a_part_is_not_told_as_that_of_the_cluster(person, world: World):
    Node.objects.filter(name="gpu-1").update(pool="a")
    cluster_settings.open_maintenance(
        world.cluster,
        pool="a",
        starts_at=world.now,
        ends_at=world.now + timedelta(hours=1),
        reason="r",
        actor="user:t",
        now=world.now,
    )
    [maintained, enforcing] = signs(person("viewer"))
    assert maintained == "c1 · pool a: Maintenance"
    assert enforcing == "Enforcing"
    assert signs(pools.bound("vera", "viewer", world.cluster, "b", world.now)[1]) == ["Enforcing"]


def test_the_strip_says_a_thing_once_for_all_its_places(person, world: World):
    for rack in ("rack-05", "rack-06", "7"):
        Maintenance.objects.create(
            cluster=world.cluster,
            selection={"domains": {"rack": [rack]}},
            starts_at=world.now,
            ends_at=world.now + timedelta(days=10**4),
        )
    client = person("viewer")
    assert signs(client) == ["Maintenance (3)", "Enforcing"]
    assert [alarm.part for alarm in client.get("/account/").context["banner"].alarms] == [
        "rack-05",
        "rack-06",
        "rack 7",
    ]
    Maintenance.objects.last().delete()
    assert signs(client) == ["c1 · rack-05, c1 · rack-06: Maintenance", "Enforcing"]


def test_a_pause_is_offered_on_a_page_that_was_loaded_while_paused(person, world: World):
    services.pause(cluster=None, reason="r", actor="user:t", now=world.now)
    found = [entry.href for entry in person("admin").get("/account/").context["palette"]]
    assert {"/pause/", "/resume/"} <= set(found)


def test_the_frame_is_for_people_who_are_signed_in(client, world: World):
    assert client.get("/frame/").status_code == 302
