"""Safety on the console: every guard with its count, how it is changed, maintenance, and the banner of all pages."""

import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from kcover.decisions import guards
from kcover_portal.console import presentation
from kcover_portal.console.forms import guard_settings
from kcover_portal.console.reads import headroom, safety
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from tests.portal.console.test_approvals import text, words
from tests.portal.rescue.world import CORDON, World


@pytest.fixture
def fleet_of_ten(db: None):
    world = World(policy=CORDON, nodes=10)
    world.now = timezone.now()
    Node.objects.filter(name__in=["gpu-1", "gpu-2"]).update(pool="a")
    yield world
    world.uninstall()


def set_guards(world: World, **patch) -> None:
    cluster_settings.set_guards(world.cluster, patch, actor="user:t", reason="t", now=world.now)


def gauges(world: World) -> dict[str, list[safety.Gauge]]:
    found: dict[str, list[safety.Gauge]] = {}
    for gauge in safety.bounds(world.cluster, now=world.now).gauges:
        found.setdefault(gauge.guard, []).append(gauge)
    return found


# --------------------------------------------------------------------------------------------------------------- gauges


def test_every_guard_has_a_name_a_form_and_a_place():
    assert set(guard_settings.PARTS) == set(guards.to_json(guards.Settings()))
    assert set(guards.GUARDS) | set(guard_settings.PARTS) <= set(presentation.GUARDS)


def test_the_gauges_use_the_counts_of_the_guards(fleet_of_ten: World):
    world = fleet_of_ten
    set_guards(world, breaker={"limit": 2}, budget={"limit": 4}, floor={"percent": 80}, storm={"enabled": False})
    for name in ("gpu-1", "gpu-3"):
        world.fault(62, node=name)
        world.work()
    found = gauges(world)
    assert [(one.count, one.limit, one.state) for one in found["breaker"]] == [(2, 2, "tripped")]
    assert [(one.count, one.limit, one.state) for one in found["budget"]] == [(2, 4, "calm")]
    worst = found["floor"][0]
    assert (worst.scope, worst.count, worst.limit, worst.state) == ("a", 1, 1, "tripped")
    assert [(one.count, one.limit) for one in found["plans"]] == [(0, 5)]
    assert found["storm"][0].state == "off"
    assert [one.count for one in found["rate"]] == [2, 2, 2]
    world.fault(62, node="gpu-4")
    world.work()
    assert not world.kube.get_node("gpu-4").unschedulable  # and it is so: the breaker holds the third one back


def test_a_budget_is_shown_by_its_scope(fleet_of_ten: World):
    set_guards(fleet_of_ten, budget={"limit": "50%", "by": "pool"})
    fleet_of_ten.fault(62)
    fleet_of_ten.work()
    assert [(one.scope, one.count, one.limit) for one in gauges(fleet_of_ten)["budget"]] == [
        ("a", 1, 1),
        ("no pool", 0, 4),
    ]


def test_the_gauge_of_storms_counts_the_code_that_most_nodes_show(fleet_of_ten: World):
    """Also one that no rule covers: it opens no storm by itself, and people see it come."""
    world = fleet_of_ten
    seen = {"kind": "xid", "state": "open", "opened_at": world.now, "cluster": world.cluster}

    def shown() -> tuple[int, int | None, str]:
        [gauge] = gauges(world)["storm"]
        return gauge.count, gauge.limit, gauge.state

    assert shown() == (0, 3, "calm")
    for name in ("gpu-1", "gpu-2"):
        Incident.objects.create(**seen, node=world.node(name), code="74", last_at=world.now)
    Incident.objects.create(**seen, node=world.node("gpu-1"), code="48", last_at=world.now)
    assert shown() == (2, 3, "calm")
    Incident.objects.create(**seen, node=world.node("gpu-3"), code="74", last_at=world.now, is_user_fault=True)
    Incident.objects.create(**seen, node=world.node("gpu-4"), code="74", last_at=world.now - timedelta(hours=1))
    assert shown() == (2, 3, "calm"), "programs and old faults do not count"
    Incident.objects.create(**seen, node=world.node("gpu-5"), code="74", last_at=world.now)
    assert shown() == (3, 3, "near")
    assert "Xid 74" in gauges(world)["storm"][0].note


def test_an_open_storm_trips_its_gauge_until_it_is_closed(fleet_of_ten: World):
    world = fleet_of_ten
    storm, _ = incidents.keep_storm(
        world.cluster,
        guards.Symptom(trait="code", kind="xid", value="62", nodes=3),
        nodes=["gpu-1", "gpu-2", "gpu-3"],
        now=world.now,
    )
    assert [(one.count, one.limit, one.state) for one in gauges(world)["storm"]] == [(3, 3, "tripped")]
    incidents.close_by_hand(storm, actor="user:omar", reason="the switch was it", now=world.now)
    assert gauges(world)["storm"][0].state == "calm"


def test_without_eligible_nodes_no_gauge_trips(db: None):
    world = World(nodes=0)
    assert {gauge.state for gauge in safety.bounds(world.cluster, now=world.now).gauges} <= {"off", "calm"}
    world.uninstall()


# ----------------------------------------------------------------------------------------------------------------- page


def test_the_page_shows_every_cluster_and_the_excluded_nodes(person, fleet_of_ten: World):
    Node.objects.filter(name="gpu-7").update(labels={"kcover.io/exclude": "true"})
    page = words(person("viewer").get("/safety/"))
    assert "9 nodes counted" in page
    assert "gpu-7" in page
    assert "kcover.io/exclude=true" in page
    assert "kcover.io/exclude=true" in words(person("admin").get("/safety/")), "the links to dialogs leave it alone"
    assert "0 of 10 isolated within 5 min" in page
    assert "Change" not in page
    assert "Change" in words(person("operator").get("/safety/"))


def test_a_guard_is_changed_with_a_reason_on_record(person, fleet_of_ten: World):
    client = person("admin", name="omar")
    address = "/safety/c1/guards/breaker/"
    shown = text(client.get(address))
    assert 'value="5 min"' in shown
    assert client.post(address, {"enabled": "on", "limit": "5%", "window": "1 h", "reason": ""}).status_code == 422
    done = client.post(address, {"enabled": "on", "limit": "5%", "window": "1 h 30 min", "reason": "new switches"})
    assert done.status_code == 302
    breaker = fleet.guards_of(type(fleet_of_ten.cluster).objects.get()).breaker
    assert (str(breaker.limit), breaker.window) == ("5%", timedelta(minutes=90))
    entry = Entry.objects.get(verb="cluster.guards")
    assert (entry.actor, entry.data["reason"]) == ("user:omar", "new switches")


@pytest.mark.parametrize(
    ("guard", "given", "said"),
    [
        ("breaker", {"limit": "many", "window": "5 min"}, "is not a limit"),
        ("breaker", {"limit": "5", "window": "soon"}, "Enter a duration such as"),
        ("storm", {"nodes": "0", "percent": "3", "window": "5 min"}, "Must be a whole number from 1"),
        ("budget", {"limit": "5", "by": "rack"}, "Must be cluster, pool or label:KEY"),
        ("hold_down", {"hold_down": "30 d"}, "Must be whole seconds from 0 to 86400"),
    ],
)
def test_an_invalid_setting_is_refused_at_its_field(person, fleet_of_ten: World, guard, given, said):
    response = person("admin").post(f"/safety/c1/guards/{guard}/", {**given, "reason": "r"})
    assert response.status_code == 422
    assert said in text(response)
    assert not Entry.objects.filter(verb="cluster.guards").exists()


@pytest.mark.parametrize("guard", sorted(guard_settings.PARTS))
def test_every_guards_form_saves_the_shown_values(person, fleet_of_ten: World, guard: str):
    form = guard_settings.Guard(None, guard=guard, settings=fleet.guards_of(fleet_of_ten.cluster))
    shown = {name: form[name].value() for name in form.fields if name != "reason"}
    given = {name: "on" if value is True else value for name, value in shown.items() if value not in (None, False)}
    response = person("admin").post(f"/safety/c1/guards/{guard}/", {**given, "reason": "as it is"})
    assert response.status_code == 302
    assert not Entry.objects.filter(verb="cluster.guards").exists()  # nothing changed, so nothing is noted


def test_a_viewer_changes_nothing_and_a_strangers_cluster_is_not_there(person, fleet_of_ten: World, now):
    assert person("viewer").get("/safety/c1/guards/storm/").status_code == 403
    assert person("viewer").post("/safety/c1/mode/", {"mode": "paused", "reason": "r"}).status_code == 403
    west = type(fleet_of_ten.cluster).objects.create(name="west", created_at=now)
    assert person("admin", cluster=west).get("/safety/c1/guards/storm/").status_code == 404
    assert person("admin").get("/safety/c1/guards/nonsense/").status_code == 404


def test_one_cluster_is_paused_and_resumed(person, fleet_of_ten: World):
    client = person("operator", name="omar")
    assert "selected>Paused" in text(client.get("/safety/c1/mode/?mode=paused"))
    assert "Approve: it asks before it takes running work away." in text(client.get("/safety/c1/mode/"))
    assert client.post("/safety/c1/mode/", {"mode": "paused", "reason": "power works"}).status_code == 302
    assert "power works" in text(client.get("/nodes/"))
    client.post("/safety/c1/mode/", {"mode": "enforce", "reason": "done"})
    assert type(fleet_of_ten.cluster).objects.get().mode == "enforce"


def test_a_mode_that_changed_since_the_form_was_opened_is_shown_first(person, fleet_of_ten: World):
    client = person("operator", name="omar")
    seen = client.get("/safety/c1/mode/").context["form"]["seen"].value()
    client.post("/safety/c1/mode/", {"mode": "paused", "reason": "wrong nodes"})
    given = {"mode": "enforce", "reason": "the drill is over", "seen": seen}
    refused = client.post("/safety/c1/mode/", given)
    assert (refused.status_code, type(fleet_of_ten.cluster).objects.get().mode) == (422, "paused")
    again = given | {"seen": refused.context["form"]["seen"].value()}
    assert client.post("/safety/c1/mode/", again).status_code == 302
    assert type(fleet_of_ten.cluster).objects.get().mode == "enforce"


# ---------------------------------------------------------------------------------------------------------- maintenance


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        *(("2 hours", 7200), ("30m", 1800), ("30min", 1800), ("1 h 30 min", 5400), ("90s", 90), ("1 day 2 h", 93_600)),
        *(("2 小时", 7200), ("1 hour and 5 minutes", 3900), ("7 d", 604_800)),
        *(("30", None), ("h", None), ("2 fortnights", None), ("1.5 h", None)),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: str, seconds: int | None):
    field = guard_settings.Span()
    if seconds is None:
        with pytest.raises(ValidationError):
            field.clean(written)
    else:
        assert field.clean(written) == seconds


def test_maintenance_is_not_of_the_whole_fleet_unless_somebody_says_so(person, fleet_of_ten: World):
    client = person("admin")
    form = client.get("/maintenance/new/").context["form"]
    assert (form["by"].value(), form["cluster"].value()) == ("nodes", "c1")
    given = {"cluster": form["cluster"].value(), "by": form["by"].value(), "lasts": "2 hours", "reason": "r"}
    assert client.post("/maintenance/new/", given).status_code == 422
    assert not Maintenance.objects.exists()


def test_times_are_entered_in_the_browsers_zone(person, fleet_of_ten: World):
    client = person("admin")
    client.cookies["kcover_zone"] = "Asia/Shanghai"
    given = {"cluster": "c1", "begins": "2099-01-02T08:00", "lasts": "2 hours", "reason": "r"}
    assert client.post("/maintenance/new/", given).status_code == 302
    assert Maintenance.objects.get().starts_at == datetime(2099, 1, 2, tzinfo=UTC)
    asked = client.get("/reports/?period=custom&from=2026-01-02&to=2026-01-03").context["asked"]
    assert asked.period.since == datetime(2026, 1, 1, 16, tzinfo=UTC)
    client.cookies["kcover_zone"] = "../../etc/passwd"
    assert "UTC" in str(client.get("/maintenance/new/").context["form"]["begins"].label)


def test_maintenance_is_announced_shown_and_ended(person, fleet_of_ten: World):
    client = person("operator", name="omar")
    given = {"cluster": "c1", "pool": "a", "lasts": "2 h", "reason": "new switch"}
    assert client.post("/maintenance/new/", given).status_code == 302
    window = Maintenance.objects.get()
    assert (window.pool, window.ends_at - window.starts_at) == ("a", timedelta(hours=2))
    assert "new switch" in text(client.get("/safety/"))
    assert "Maintenance of pool a only: these nodes are not cordoned" in words(client.get("/nodes/"))
    assert client.post(f"/maintenance/{window.pk}/end/", {"reason": ""}).status_code == 422
    assert client.post(f"/maintenance/{window.pk}/end/", {"reason": "done early"}).status_code == 302
    assert "No maintenance scheduled." in text(client.get("/safety/"))
    assert "Maintenance of pool a" not in words(client.get("/nodes/"))


def test_a_window_that_repeats_is_one_line_and_ends_alone_or_with_all(person, fleet_of_ten: World):
    client = person("operator", name="omar")
    begins = timezone.now() + timedelta(days=1)
    last = begins + timedelta(days=15)
    given = {"cluster": "c1", "pool": "a", "begins": f"{begins:%Y-%m-%dT%H:%M}", "lasts": "2 h", "reason": "new switch"}
    for wrong, field in (
        ({"repeats": "week"}, "repeats_until"),
        ({"repeats_until": f"{last:%Y-%m-%dT%H:%M}"}, "repeats"),
        ({"repeats": "month", "repeats_until": f"{last:%Y-%m-%dT%H:%M}"}, "repeats"),
        ({"repeats": "week", "repeats_until": f"{begins:%Y-%m-%dT%H:%M}"}, "repeats_until"),
    ):
        refused = client.post("/maintenance/new/", {**given, **wrong})
        assert (refused.status_code, [*refused.context["form"].errors]) == (422, [field])
    assert not Maintenance.objects.exists()
    repeats = {"repeats": "week", "repeats_until": f"{last:%Y-%m-%dT%H:%M}"}
    assert client.post("/maintenance/new/", {**given, **repeats}).status_code == 302
    rows = list(Maintenance.objects.all())
    assert [(row.starts_at - rows[0].starts_at).days for row in rows] == [0, 7, 14]
    assert {(row.pool, row.series, row.repeats["every"]) for row in rows} == {("a", rows[0].series, "week")}
    opened = Entry.objects.get(verb="maintenance.opened")
    assert (opened.data["windows"], opened.data["repeats"]["zone"]) == (3, "UTC")

    def shown() -> list[tuple[int, int]]:
        return [(window.pk, window.left) for window, *_rest in client.get("/safety/").context["windows"]]

    assert shown() == [(rows[0].pk, 2)]
    assert client.post(f"/maintenance/{rows[0].pk}/end/", {"reason": "r"}).status_code == 422
    assert client.post(f"/maintenance/{rows[0].pk}/end/", {"reason": "r", "which": "one"}).status_code == 302
    assert shown() == [(rows[1].pk, 1)]
    assert client.post(f"/maintenance/{rows[1].pk}/end/", {"reason": "r", "which": "series"}).status_code == 302
    assert shown() == []
    assert Entry.objects.filter(verb="maintenance.ended").latest("pk").data["windows"] == 2


def test_a_window_begins_in_the_persons_time_zone(person, fleet_of_ten: World):
    client = person("operator", name="omar")
    client.post("/preferences/", {"zone": "Asia/Shanghai"})
    assert "Starts (Asia/Shanghai; blank = now)" in text(client.get("/maintenance/new/"))
    tomorrow = timezone.now() + timedelta(days=1)
    local = tomorrow.astimezone(zoneinfo.ZoneInfo("Asia/Shanghai"))
    given = {"cluster": "c1", "begins": local.strftime("%Y-%m-%dT%H:%M"), "lasts": "1 h", "reason": "r"}
    assert client.post("/maintenance/new/", given).status_code == 302
    assert Maintenance.objects.get().starts_at == tomorrow.replace(second=0, microsecond=0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cluster": "", "pool": "a", "lasts": "1 h"}, "Select a cluster when you select nodes."),
        ({"cluster": "c1", "pool": "a", "node": "gpu-1", "lasts": "1 h"}, "Select what these names are."),
        ({"cluster": "c1", "lasts": "400 d"}, "at most 90 days"),
        ({"cluster": "c1", "lasts": "0 s"}, "Must be after the start"),
        ({"cluster": "c1", "begins": "2020-01-01T00:00", "lasts": "1 h"}, "Must be in the future"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(person, fleet_of_ten: World, given, said):
    response = person("operator").post("/maintenance/new/", {**given, "reason": "r"})
    assert response.status_code == 422
    assert said in text(response)
    assert not Maintenance.objects.exists()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cluster": "c1", "by": "pools", "which": "no-such-pool"}, "which"),
        ({"cluster": "c1", "by": "nodes", "which": "gpu-1, gpu-77"}, "which"),
        ({"cluster": "c1", "node": "gpu-77"}, "which"),
        ({"cluster": "c1", "which": "gpu-1"}, "by"),
        ({"cluster": "c1", "by": "rack"}, "which"),
        ({"cluster": "empty"}, "cluster"),
    ],
)
def test_a_window_that_covers_no_node_is_refused_at_its_field(person, fleet_of_ten: World, now, given, field):
    type(fleet_of_ten.cluster).objects.create(name="empty", created_at=now)
    response = person("operator").post("/maintenance/new/", {**given, "lasts": "1 h", "reason": "r"})
    assert response.status_code == 422
    assert list(response.context["form"].errors) == [field]
    assert not Maintenance.objects.exists()


@pytest.mark.parametrize(
    ("scope", "count", "unknown"),
    [
        ({}, 10, None),
        ({"cluster": "c1"}, 10, ""),
        ({"cluster": "c1", "by": "pools", "which": "a"}, 2, ""),
        ({"cluster": "c1", "by": "nodes", "which": " gpu-7,gpu-8\ngpu-9 "}, 3, ""),
        ({"cluster": "c1", "by": "pools", "which": "b"}, 0, "b"),
        ({"cluster": "c1", "by": "nodes", "which": "gpu-1\0"}, 1, ""),
        ({"cluster": "c1", "by": "rack", "which": "r1"}, 2, ""),
        ({"cluster": "c1", "by": "nonsense", "which": "x"}, 10, ""),
    ],
)
def test_the_line_of_a_scope_shows_its_contents(person, fleet_of_ten: World, scope, count, unknown):
    Node.objects.filter(name__in=["gpu-3", "gpu-4"]).update(labels={"topology.kubernetes.io/rack": "r1"})
    client = person("viewer")
    shown = client.post("/scopes/line/", scope)
    assert shown.status_code == 200
    found = shown.context["found"]
    assert (found["nodes"] if isinstance(found, dict) else found.nodes) == count
    assert shown.context.get("unknown") == unknown


def test_the_line_offers_known_values_and_names_the_guards(person, fleet_of_ten: World, now):
    set_guards(fleet_of_ten, breaker={"limit": 4}, storm={"enabled": False})
    client = person("operator")
    assert 'hx-post="/scopes/line/"' in client.get("/maintenance/new/").content.decode()
    offered = client.post("/scopes/line/", {"cluster": "c1", "by": "nodes", "which": ""}).context
    assert [value for value, _, _ in offered["values"]][:2] == ["gpu-1", "gpu-10"]
    assert "found" not in offered
    typed = client.post("/scopes/line/", {"cluster": "c1", "by": "nodes", "which": "gpu-1, gpu-2, u-1"}).context
    assert typed["values"] == [("gpu-1", 1, True), ("gpu-10", 1, False)]
    assert typed["guards"] == [("Breaker", 4, False)]
    assert client.post("/scopes/line/", {"cluster": "c1", "by": "labels", "which": "a b=c="}).context["problem"]
    west = type(fleet_of_ten.cluster).objects.create(name="west", created_at=now)
    local = person("operator", cluster=west)
    assert local.post("/scopes/line/", {"cluster": "c1"}).status_code == 404
    assert local.post("/scopes/line/", {}).context["found"]["nodes"] == 0


def test_a_selection_of_nodes_becomes_the_scope_of_a_window(person, fleet_of_ten: World, now):
    client = person("operator")
    page = client.get("/nodes/").content.decode()
    assert 'hx-get="/maintenance/new/"' in page
    keys = [str(node.pk) for node in Node.objects.filter(name__in=["gpu-2", "gpu-3"])]
    form = client.get("/maintenance/new/", {"picked": ",".join(keys)}).context["form"]
    assert (form["cluster"].value(), form["by"].value(), form["which"].value()) == ("c1", "nodes", "gpu-2, gpu-3")
    assert client.get("/many/nodes/drain/", {"picked": ",".join(keys)}).context["scope_names"] == "gpu-2, gpu-3"
    summed = client.post("/scopes/line/", {"cluster": "c1", "by": "nodes", "which": "gpu-2", "only": "sum"}).context
    assert (summed["found"].nodes, "values" in summed) == (1, False)
    every = client.get("/maintenance/new/", {"all": "1", "pool": "a"}).context["form"]
    assert every["which"].value() == "gpu-1, gpu-2"
    other = type(fleet_of_ten.cluster).objects.create(name="west", created_at=now)
    far = Node.objects.create(cluster=other, name="far", in_cluster=True, created_at=now)
    mixed = client.get("/maintenance/new/", {"picked": f"{keys[0]},{far.pk}"})
    assert mixed.context["note"]
    assert not mixed.context["form"]["which"].value()
    given = {"cluster": "c1", "by": "nodes", "which": "gpu-2, gpu-3", "lasts": "1 h", "reason": "r"}
    assert client.post("/maintenance/new/", given).status_code == 302
    assert Maintenance.objects.get().selection == {"nodes": ["gpu-2", "gpu-3"]}
    assert "node gpu-2, gpu-3" in text(client.get("/safety/"))


def test_windows_for_all_clusters_need_the_role_everywhere(person, fleet_of_ten: World, now):
    local = person("operator", cluster=fleet_of_ten.cluster)
    assert local.post("/maintenance/new/", {"lasts": "1 h", "reason": "r"}).status_code == 422
    everywhere = cluster_settings.open_maintenance(
        None,
        starts_at=fleet_of_ten.now,
        ends_at=fleet_of_ten.now + timedelta(hours=1),
        reason="r",
        actor="t",
        now=fleet_of_ten.now,
    )
    assert local.post(f"/maintenance/{everywhere.pk}/end/", {"reason": "r"}).status_code == 403
    assert person("viewer").get("/maintenance/new/").status_code == 403


# --------------------------------------------------------------------------------------------------------------- banner


def test_the_banner_shows_an_open_breaker_and_a_storm_on_every_page(person, fleet_of_ten: World):
    world, client = fleet_of_ten, person("viewer")
    assert "Breaker open" not in words(client.get("/nodes/"))
    set_guards(world, breaker={"limit": 1}, storm={"enabled": False})
    world.fault(62)
    world.work()
    page = words(client.get("/nodes/"))
    assert "Breaker open: 1 nodes isolated within 5 min (limit 1)." in page
    storm, _ = incidents.keep_storm(
        world.cluster,
        guards.Symptom(trait="code", kind="xid", value="62", nodes=3),
        nodes=["gpu-1", "gpu-2"],
        now=world.now,
    )
    page = text(client.get("/nodes/"))
    assert "Storm: Xid 62 on 2 nodes" in page
    assert f"/incidents/{storm.pk}/" in page


def test_a_breaker_of_another_cluster_is_not_shown(person, fleet_of_ten: World, now):
    set_guards(fleet_of_ten, breaker={"limit": 1})
    services.request(fleet_of_ten.node(), "cordon", actor="user:omar", reason="r", now=fleet_of_ten.now)
    west = type(fleet_of_ten.cluster).objects.create(name="west", created_at=now)
    assert "Breaker open" not in words(person("viewer", cluster=west).get("/nodes/"))
    assert "Breaker open" in words(person("viewer").get("/nodes/"))


def test_budgets_over_time_count_nodes_that_are_isolated_or_in_rescue_at_once(fleet_of_ten: World, person):
    world = fleet_of_ten
    Node.objects.update(pool="a")
    Node.objects.filter(name__in=("gpu-1", "gpu-2")).update(pool="b")
    set_guards(world, budget={"limit": 3, "by": "pool"}, storm={"enabled": False}, breaker={"enabled": False})
    start, by = world.now, {"origin": "manual", "requested_by": "user:x"}
    spans = (("gpu-1", 0, 90), ("gpu-1", 60, 180), ("gpu-2", 60, 120), ("gpu-3", 10, None), ("gpu-4", 200, 201))
    for name, begin, end in spans:
        closed = end and start + timedelta(minutes=end)
        times = {"opened_at": start + timedelta(minutes=begin), "closed_at": closed}
        state = "healed" if end else "running"
        Rescue.objects.create(cluster=world.cluster, node=world.node(name), state=state, **times, **by)
    now = start + timedelta(hours=6)
    first, second = headroom.of_budgets([world.cluster], now=now, span="24h")
    assert (first.scope, first.limit, max(first.peaks)) == ("a", 3, 2)
    assert (second.scope, second.limit, max(second.peaks)) == ("b", 3, 2)
    bars = {at: peak for at, peak, _left in first.rows}
    assert len(bars) in (6, 7), "a rescue that is open counts until now"
    assert sorted(bars.values()) == [1] * (len(bars) - 1) + [2]
    assert [left for _at, _peak, left in second.rows] == [3 - peak for _at, peak, _left in second.rows]
    assert headroom.of_budgets([world.cluster], now=start - timedelta(days=3), span="24h")[0].rows == []
    set_guards(world, budget={"limit": None})
    assert headroom.of_budgets([world.cluster], now=now, span="24h") == []


def test_the_breaker_over_time_counts_nodes_within_its_window(fleet_of_ten: World, person):
    world = fleet_of_ten
    set_guards(world, breaker={"limit": 5, "window": 600}, storm={"enabled": False})
    for number, minutes in ((3, 0), (4, 4), (5, 20)):  # the third is no longer within the window of the first two
        world.now = world.now + timedelta(minutes=minutes)
        world.fault(node=f"gpu-{number}")
        world.work()
    [found] = headroom.of_breakers([world.cluster], now=world.now, span="24h")
    assert (found.limit, max(found.peaks), sum(1 for peak in found.peaks if peak)) == (5, 2, len(found.rows))
    assert {(peak, left) for _at, peak, left in found.rows} <= {(2, 3), (1, 4)}
    page = person("viewer").get("/safety/headroom/?span=24h")
    assert [one.cluster for one in page.context["clusters"]] == ["c1"]
    assert "<xid-trend" in page.content.decode()
    assert 'hx-get="/safety/headroom/"' in person("viewer").get("/safety/").content.decode()
    other = Cluster.objects.create(name="other", created_at=world.now)
    assert person("viewer", cluster=other).get("/safety/headroom/").context["clusters"][0].cluster == "other"
    assert page.context["budgets"] == []
    set_guards(world, breaker={"enabled": False}, budget={"limit": 2})
    page = person("viewer").get("/safety/headroom/?span=24h")
    assert [(one.cluster, one.scope, one.limit) for one in page.context["budgets"]] == [("c1", "", 2)]
    assert headroom.of_breakers([world.cluster], now=world.now, span="24h") == []
