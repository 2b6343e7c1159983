"""The limits of automation on the pages of a rescue, a storm and a node, and in the dialog of an action."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kcover import reasons
from kcover.decisions import guards
from kcover_portal.fleet import services as fleet_services
from kcover_portal.fleet.models import Maintenance, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services as rescues
from kcover_portal.rescue.models import Rescue, Step
from tests.portal.console.test_approvals import text, words
from tests.portal.rescue.world import HEAL, World


@pytest.fixture
def ten(db: None):
    world = World(policy=HEAL, nodes=10)
    world.now = timezone.now()
    world.kube.add_pod("train", "worker-0", node="gpu-1")
    yield world
    world.uninstall()


def set_guards(world: World, **patch) -> None:
    cluster_settings.set_guards(world.cluster, patch, actor="user:t", reason="t", now=world.now)


def maintain(world: World, **where: str) -> Maintenance:
    ends_at = timezone.now() + timedelta(hours=1)
    return cluster_settings.open_maintenance(
        world.cluster,
        starts_at=timezone.now() - timedelta(minutes=1),
        ends_at=ends_at,
        reason="new switch",
        actor="user:t",
        now=world.now,
        **where,
    )


def storm_on(world: World, *names: str) -> Incident:
    return incidents.keep_storm(
        world.cluster, guards.Symptom(trait="code", kind="xid", value="62", nodes=3), nodes=names, now=world.now
    )[0]


# --------------------------------------------------------------------------------------------------------------- rescue


def test_a_rescue_shows_what_blocks_it_and_its_next_check(person, ten: World):
    ten.fault()
    ten.work()
    maintain(ten, node="gpu-1")
    for _ in range(3):
        ten.pass_time()
    page = words(person("viewer").get(f"/rescues/{ten.rescue().pk}/"))
    assert "Currently blocked by: Maintenance window (node gpu-1)" in page
    assert "Next check" in page
    why = words(person("viewer").get("/nodes/c1/gpu-1/"))
    assert "is blocked: Maintenance window (node gpu-1)" in why


def test_a_rescue_shows_which_guards_it_passed_and_who_overrode_one(person, ten: World):
    client = person("approver", name="appa")
    maintain(ten, node="gpu-1")
    asked = words(client.get("/nodes/c1/gpu-1/cordon/"))
    assert "Override guards (recorded in your name)" in asked
    refused = client.post("/nodes/c1/gpu-1/cordon/", {"reason": "r"})
    assert refused.status_code == 422
    done = client.post("/nodes/c1/gpu-1/cordon/", {"reason": "agreed with its owner", "override": ["maintenance"]})
    assert done.status_code == 302
    rescue = Rescue.objects.get()
    assert rescue.overrides["maintenance"] == "user:appa"
    page = words(client.get(f"/rescues/{rescue.pk}/"))
    assert "Overridden guards" in page
    assert "Maintenance appa" in page
    assert "appa Overridden guards · Maintenance Maintenance window (node gpu-1) until" in page
    assert "Overridden guards: Breaker" not in page
    assert Entry.objects.get(verb="rescue.opened").data["overrides"]["maintenance"] == "user:appa"


def test_an_operator_cannot_override_guards(person, ten: World):
    client = person("operator")
    maintain(ten, node="gpu-1")
    asked = words(client.get("/nodes/c1/gpu-1/drain/"))
    assert "An approver can override guards" in asked
    assert 'name="override"' not in text(client.get("/nodes/c1/gpu-1/drain/"))
    sent = client.post("/nodes/c1/gpu-1/drain/", {"reason": "r", "override": ["maintenance"]})
    assert sent.status_code == 422
    assert "maintenance is not one of the available choices" in text(sent)
    assert not Rescue.objects.exists()


def test_an_exclusion_is_not_offered_as_an_override(person, ten: World):
    client = person("admin")
    Node.objects.filter(name="gpu-1").update(labels={"kcover.io/exclude": "true"})
    asked = text(client.get("/nodes/c1/gpu-1/drain/"))
    assert str(reasons.of("excluded", node="gpu-1", label=guards.EXCLUDE_LABEL)) in asked
    assert 'value="exclusion"' not in asked
    assert client.post("/nodes/c1/gpu-1/drain/", {"reason": "r", "override": ["exclusion"]}).status_code == 422
    assert not Rescue.objects.exists()


def test_every_guard_that_holds_is_offered_by_its_name(person, ten: World):
    set_guards(ten, budget={"limit": 1}, floor={"percent": 100})
    maintain(ten, pool="")
    ten.fault(62, node="gpu-2")
    page = text(person("admin").get("/nodes/c1/gpu-1/drain/"))
    offered = [name for name in ("maintenance", "budget", "floor", "breaker") if f'value="{name}"' in page]
    assert offered == [
        "maintenance",
        "floor",
    ]  # nothing was taken of the budget; the breaker yields to people by itself
    release = text(person("admin").get("/nodes/c1/gpu-1/release/"))
    assert 'name="override"' not in release


def test_a_second_round_is_shown_as_such(person, ten: World):
    ten.fault()
    ten.work()
    rescue = ten.rescue()
    steps = list(rescue.steps.all())
    Step.objects.filter(rescue=rescue).update(state="done")
    Step.objects.filter(rescue=rescue, name__in=("verify", "uncordon")).update(
        state="cancelled", because=reasons.of("stays_isolated").to_json()
    )
    for offset, name in enumerate(("drain", "reboot", "ready", "verify", "uncordon")):
        Step.objects.create(rescue=rescue, index=len(steps) + offset, name=name, round=2)
    page = words(person("viewer").get(f"/rescues/{rescue.pk}/"))
    assert page.count("Round 2: faults occurred after the repair, so the plan runs again.") == 1
    assert "Round 3" not in page


# ---------------------------------------------------------------------------------------------------------------- storm


def test_a_storm_lists_its_nodes_and_is_closed_with_a_reason(person, ten: World):
    storm = storm_on(ten, "gpu-1", "gpu-2", "gone-9")
    client = person("operator", name="omar")
    page = words(client.get(f"/incidents/{storm.pk}/"))
    assert "Storm: Xid 62 on 3 nodes." in page
    assert all(name in page for name in ("gpu-1", "gpu-2", "gone-9"))
    assert "This code is not in the catalog" not in page
    address = f"/incidents/{storm.pk}/close/"
    assert "Close the storm" in text(client.get(address))
    assert client.post(address, {"reason": ""}).status_code == 422
    assert client.post(address, {"reason": "the switch was it"}).status_code == 302
    closed = reasons.of("closed_by_because", by="user:omar", why="the switch was it")
    assert Incident.objects.get(pk=storm.pk).closed_why == closed
    late = client.post(address, {"reason": "again"})
    assert late.status_code == 422
    assert str(reasons.of("incident_closed_already", incident=storm.pk)) in text(late)
    assert "Close the storm" not in words(client.get(f"/incidents/{storm.pk}/"))


def test_the_page_of_a_storm_shows_the_outcome_for_each_node(person, ten: World):
    set_guards(ten, storm={"enabled": True}, budget={"limit": 1})
    for number in (1, 2, 3):
        ten.fault(62, node=f"gpu-{number}")
    ten.work()
    ten.sync()
    storm = Incident.objects.get(kind="storm")
    client = person("operator")
    shown = client.get(f"/incidents/{storm.pk}/").context
    assert shown["isolated"] == 1
    assert [one.name for one in shown["scope"] if one.isolated] == ["gpu-1"]
    assert all(one.because for one in shown["scope"])


def test_the_close_preview_of_a_storm_changes_nothing(person, ten: World):
    set_guards(ten, storm={"enabled": True})
    for number in (1, 2, 3, 4):
        ten.fault(62, node=f"gpu-{number}")
    ten.work()
    storm = Incident.objects.get(kind="storm")
    ten.pass_time(600)  # beyond the storm's window: only the storm holds them back
    before = list(Incident.objects.order_by("pk").values()), Rescue.objects.count()
    after = rescues.after_storm(storm, now=ten.now)
    assert (list(Incident.objects.order_by("pk").values()), Rescue.objects.count()) == before
    assert [(one.node.name, one.decision.answer) for one in after] == [("gpu-3", "rescue"), ("gpu-4", "rescue")]
    assert [step.name for step in after[0].decision.steps][:3] == ["cordon", "drain", "reboot"]
    shown = person("operator").get(f"/incidents/{storm.pk}/close/").context["after"]
    assert [one.node.name for one in shown] == [one.node.name for one in after]


def test_rescues_that_wait_for_a_storm_are_listed_before_it_is_closed(person, ten: World):
    set_guards(ten, storm={"enabled": True}, rate={"enabled": False})
    for number in (1, 2, 3, 4):
        ten.fault(62, node=f"gpu-{number}")
    ten.work()
    storm = Incident.objects.get(kind="storm")
    ten.pass_time(600)
    with CaptureQueriesContext(connection) as captured:
        shown = person("operator").get(f"/incidents/{storm.pk}/close/").context
    touching = [query["sql"] for query in captured.captured_queries if "incidents_incident" in query["sql"]]
    assert touching
    assert [sql for sql in touching if "FOR UPDATE" in sql or not sql.startswith("SELECT")] == []
    held = shown["held"]
    assert [(one.node.name, [step.name for step in one.steps][:2]) for one in held] == [
        ("gpu-1", ["drain", "reboot"]),
        ("gpu-2", ["drain", "reboot"]),
    ]
    assert [(tuple(one.held_back), one.asks) for one in held] == [((), False)] * 2
    named = {one.node.name for one in [*held, *shown["after"]]}
    incidents.close_by_hand(storm, actor="user:omar", reason="r", now=ten.now)
    for _ in range(30):
        ten.pass_time(20)
    begun = {rescue.node.name for rescue in Rescue.objects.filter(steps__name="drain", steps__attempts__gt=0)}
    assert begun == named == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}


def test_the_close_page_of_a_storm_shows_what_would_still_hold_each_rescue(person, ten: World):
    set_guards(ten, storm={"enabled": True}, rate={"enabled": False})
    for number in (1, 2, 3):
        ten.fault(62, node=f"gpu-{number}")
    ten.work()
    storm = Incident.objects.get(kind="storm")
    client, address = person("operator"), f"/incidents/{storm.pk}/close/"
    held = client.get(address).context["held"]
    assert [[reason.code for reason in one.held_back] for one in held] == [
        ["storm_code"]
    ] * 2  # still within the window
    ten.pass_time(600)
    maintain(ten)
    fleet_services.resume(cluster=ten.cluster, reason="", actor="user:ann", now=ten.now, mode="approve")
    held = client.get(address).context["held"]
    assert [([reason.code for reason in one.held_back], one.asks) for one in held] == [
        (["maintenance_because"], True),
        (["maintenance_because"], True),
    ]


def test_a_storm_that_holds_no_rescue_shows_so(person, ten: World):
    storm = storm_on(ten, "gpu-1", "gpu-2")
    shown = person("operator").get(f"/incidents/{storm.pk}/close/").context
    assert (list(shown["held"]), list(shown["after"])) == ([], [])


def test_an_incident_is_vouched_for_by_an_operator_only(person, ten: World):
    ten.fault(79)
    pk = Incident.objects.get().pk
    assert "Mark as resolved" not in text(person("viewer").get(f"/incidents/{pk}/"))
    assert person("viewer").post(f"/incidents/{pk}/close/", {"reason": "r"}).status_code == 403
    client = person("operator")
    assert "Mark as resolved" in text(client.get(f"/incidents/{pk}/"))
    assert client.post(f"/incidents/{pk}/close/", {"reason": "card replaced"}).status_code == 302
    assert Incident.objects.get().state == "closed"


def test_a_storm_has_its_line_in_the_list_of_incidents(person, ten: World):
    storm_on(ten, "gpu-1", "gpu-2")
    assert "2 nodes" in words(person("viewer").get("/incidents/"))


# ----------------------------------------------------------------------------------------------------------------- node


def test_a_node_in_a_storm_or_in_maintenance_shows_it(person, ten: World):
    client = person("viewer")
    ten.fault(95)
    ten.work()
    storm = storm_on(ten, "gpu-1", "gpu-2")
    maintain(ten)
    page = words(client.get("/nodes/c1/gpu-1/"))
    assert "Part of an open storm: Xid 62" in page
    assert "During this window the portal will not cordon, drain or reboot these nodes. new switch" in page
    assert f'href="/incidents/{storm.pk}/"' in text(client.get("/nodes/c1/gpu-1/"))


def test_the_refusal_of_a_guard_is_shown_on_the_node(person, ten: World):
    set_guards(ten, breaker={"limit": 1})
    ten.fault(62, node="gpu-2")
    ten.work()
    ten.fault(62)
    ten.work()
    page = words(person("viewer").get("/nodes/c1/gpu-1/"))
    assert "Breaker tripped: 1 of 10 nodes were isolated within 5 min (limit 1)." in page
    assert "Next check" in page


def test_a_healthy_node_shows_no_explanation(person, ten: World):
    maintain(ten)
    assert "Why is this node not healing?" not in text(person("viewer").get("/nodes/c1/gpu-1/"))
