"""``GET /needs``: one entry a cause, what people did about it, and the acts that the caller may do next."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kcover.needs import Need
from kcover.repairs.repairs import Part
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import User
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.needs import services
from kcover_portal.needs.models import NeedAct
from kcover_portal.repairs import services as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Decision, Rescue
from tests.portal.api.conftest import Api, add_node, caller, fields, person, problem

pytestmark = pytest.mark.django_db

LEAF = "kcover.io/switch"


@pytest.fixture
def now() -> datetime:
    return timezone.now()


def add_fault(node: Node, at: datetime, *, code: str = "79", kind: str = "xid", severity: str = "fatal") -> Incident:
    return Incident.objects.create(
        cluster=node.cluster, node=node, kind=kind, code=code, severity=severity, opened_at=at, last_at=at
    )


def entries(api: Api, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"needs{query}").json()["results"]
    return found


def codes(entry: dict[str, Any]) -> list[str]:
    return [reason["code"] for reason in entry["why_reasons"]]


@pytest.fixture
def racks(east: Cluster, now: datetime) -> list[Node]:
    """Three nodes on leaf-1 and one on leaf-2, each with Xid 79; the last one the oldest."""
    nodes = [
        add_node(east, f"gpu-{n}", now, labels={LEAF: "leaf-2" if n == 4 else "leaf-1"}, pool="b" if n == 3 else "a")
        for n in range(1, 5)
    ]
    for age, node in enumerate(nodes[:3]):
        add_fault(node, now - timedelta(minutes=age))
    return nodes


def test_every_kind_has_an_entry_with_a_sentence_and_rows(waiting: dict[str, str], viewer: Api) -> None:
    found = entries(viewer)
    assert {entry["kind"] for entry in found} == set(Need)
    for entry in found:
        assert (entry["what"], entry["why"], entry["rows"]) != ("", "", [])
        assert entry["actions"] == []  # a viewer may do nothing
    assert {row["about"]["id"] for entry in found for row in entry["rows"]} == set(waiting.values())
    assert len({entry["id"] for entry in found}) == len(found)


def test_an_operator_sees_the_allowed_actions_with_existing_paths(
    waiting: dict[str, str], operator: Api, admin: Api
) -> None:
    def offered(api: Api) -> dict[str, set[str]]:
        return {entry["kind"]: {act["name"] for act in entry["actions"]} for entry in entries(api)}

    assert offered(operator) == {
        "ledger": {"close"},
        "storm": {"close"},
        "rescue": {"open_repair", "release"},
        "approval": set(),
        "incident": {"rescue", "open_repair", "resolve"},
        "job": {"restart"},
        "watch": set(),
        "source": {"test"},
        "repair": {"repair_accept", "repair_refuse"},
        "part": {"review_part"},
    }
    assert offered(admin)["approval"] == {"approve", "reject"}
    paths = {act["path"] for entry in entries(admin) for act in entry["actions"]}
    assert {f"/api/v1/rescues/{waiting['approval']}/approve", "/api/v1/nodes/east/gpu-3/reboot"} <= paths


def test_the_open_repair_of_a_node_is_shown_instead_of_the_form_that_reports_one(
    waiting: dict[str, str], operator: Api, now: datetime
) -> None:
    left, faulty = Rescue.objects.get(pk=waiting["rescue"]).node, Incident.objects.get(pk=waiting["incident"]).node
    assert faulty is not None
    closed, _, newest = (
        repairs.report(node, part=Part(kind=kind), actor="user:ann", reason="x", now=now).pk
        for node, kind in ((faulty, "gpu"), (left, "nic"), (left, "gpu"))
    )
    Repair.objects.filter(pk=closed).update(state="closed", closed_at=now)
    acts = {
        (act["node"], act["name"], act["method"], act["path"])
        for entry in entries(operator)
        for act in entry["actions"]
        if act["name"] in ("see_repair", "open_repair")
    }
    assert acts == {
        (left.name, "see_repair", "GET", f"/api/v1/repairs/{newest}"),
        (faulty.name, "open_repair", "POST", "/api/v1/repairs"),
    }
    page = person("otto", "operator", now).client.get("/").content.decode()
    assert f'href="/repairs/{newest}/"' in page
    assert f"/repairs/new/east/{left.name}/" not in page
    assert f"/repairs/new/east/{faulty.name}/" in page


def test_one_cause_is_one_entry_with_the_common_place_of_its_nodes(racks: list[Node], viewer: Api) -> None:
    [entry] = entries(viewer)
    assert (entry["nodes"], entry["place"]) == (["gpu-3", "gpu-2", "gpu-1"], {"domain": "leaf", "value": "leaf-1"})
    assert entry["what_reason"]["params"]["where"]["code"] == "need_on_nodes_leaf"
    assert (codes(entry), entry["severity"]) == (["need_undecided"], "fatal")
    assert entry["meaning"]
    assert entry["advice"]
    add_fault(racks[3], timezone.now())
    [wider] = entries(viewer)
    assert (wider["id"], len(wider["nodes"]), wider["place"]) == (entry["id"], 4, None)


def test_the_worst_and_oldest_come_first_and_a_node_counts_once(racks: list[Node], viewer: Api, now: datetime) -> None:
    add_fault(racks[0], now - timedelta(hours=3), code="94", severity="degraded")
    add_fault(racks[3], now - timedelta(hours=2), code="45", severity="warning")
    add_fault(racks[3], now - timedelta(hours=1), code="48", severity="degraded")
    assert [
        (entry["what_reason"]["params"]["fault"]["params"]["code"], entry["other_faults"]) for entry in entries(viewer)
    ] == [
        ("79", 1),
        ("48", 1),
    ]


def test_pages_follow_each_other_in_the_order_of_the_whole_list(racks: list[Node], viewer: Api, now: datetime) -> None:
    for place in range(4):
        add_fault(add_node(racks[0].cluster, f"new-{place}", now), now, code=str(60 + place), kind="sxid")
    whole = [entry["id"] for entry in entries(viewer)]
    pages, address = [], "needs?cluster=east&page_size=2"
    while address:
        page = viewer.get(address).json()
        pages.append(page)
        address = (page["next"] or "").partition("/api/v1/")[2]
    assert len(pages) == -(-len(whole) // 2) > 1
    assert [entry["id"] for page in pages for entry in page["results"]] == whole
    assert {page["count"] for page in pages} == {len(whole)}
    back = viewer.get(pages[1]["previous"].partition("/api/v1/")[2]).json()
    assert (back["results"], back["previous"]) == (pages[0]["results"], None)
    Incident.objects.filter(node=racks[0]).delete()  # entries that are gone shift no page
    following = viewer.get(pages[0]["next"].partition("/api/v1/")[2]).json()["results"]
    assert {entry["id"] for entry in following} & set(whole[:2]) == set()
    garbage = ("x", "é", "W10=", "WyJhZnRlciJd", "WyJhZnRlciIsICJhIl0=", "W" * 9000)
    for query in ("page_size=0", "page_size=1001", *(f"cursor={text}" for text in garbage)):
        assert set(fields(viewer.get(f"needs?{query}"))) == {query.partition("=")[0]}, query


def test_a_fault_without_a_rule_offers_a_rule_as_the_next_act(
    racks: list[Node], operator: Api, admin: Api, now: datetime
) -> None:
    incident = add_fault(racks[3], now, code="20034", kind="sxid")
    mismatch = {
        "code": "rule_mismatch",
        "params": {"rule": "kce#1", "why": {"code": "code_and_labels_match", "params": {}}},
    }
    Decision.objects.create(
        cluster=incident.cluster,
        node=racks[3],
        incident=incident,
        answer="none",
        mode="enforce",
        because=[mismatch],
        at=now,
        last_at=now,
    )

    def uncovered(api: Api) -> dict[str, Any]:
        return next(entry for entry in entries(api) if codes(entry) == ["need_uncovered"])

    entry = uncovered(admin)
    assert (entry["nodes"], [act["name"] for act in entry["actions"]][:2]) == (["gpu-4"], ["rescue", "add_rule"])
    assert "add_rule" not in [act["name"] for act in uncovered(operator)["actions"]]


def test_acts_are_rows_with_entries_in_the_audit_log(racks: list[Node], admin: Api, now: datetime) -> None:
    [entry] = entries(admin)
    path = f"needs/{entry['id']}"
    assert admin.post(f"{path}/acknowledge?dry_run=true").json()["acknowledged_by"] == ""
    assert admin.post(f"{path}/acknowledge", {"reason": "mine"}).json()["acknowledged_by"] == "user:ada"
    assert admin.post(f"{path}/assign", {"assignee": "ada"}).json()["assigned_to"] == "user:ada"
    assert admin.post(f"{path}/unacknowledge", {"reason": "off shift"}).json()["acknowledged_by"] == ""
    assert problem(admin.post(f"{path}/unacknowledge"), 409)["code"] == "need_not_acknowledged"
    assert admin.post(f"{path}/acknowledge").json()["acknowledged_by"] == "user:ada"
    until = (now + timedelta(hours=2)).isoformat()
    assert admin.post(f"{path}/snooze", {"until": until}).json()["snoozed_until"] is not None
    for _ in range(2):
        noted = admin.post(f"{path}/note", {"text": "cable ordered"}, Idempotency_Key="k").json()
        assert [note["text"] for note in noted["notes"]] == ["cable ordered"]
    body = admin.get("needs").json()
    assert (body["count"], len(body["results"]), body["results"][0]["id"]) == (0, 1, entry["id"])
    verbs = list(Entry.objects.filter(verb__startswith="need.").order_by("id").values_list("verb", flat=True))
    kinds = ["acknowledged", "assigned", "unacknowledged", "acknowledged", "snoozed", "noted"]
    assert verbs == [f"need.{kind}" for kind in kinds]
    # The names of the answer are understood as well.
    assert admin.post(f"{path}/snooze", {"snoozed_until": None}).json()["snoozed_until"] is None
    assert admin.post(f"{path}/assign", {"assigned_to": ""}).json()["assigned_to"] == ""
    assert set(fields(admin.post(f"{path}/assign", {"assigned_to": "", "assignee": ""}))) == {"assigned_to"}
    assert admin.get("needs").json()["count"] == 1


@pytest.mark.parametrize("worse", ["node", "severity"])
def test_an_entry_that_gets_worse_returns(racks: list[Node], admin: Api, now: datetime, worse: str) -> None:
    [entry] = entries(admin)
    admin.post(f"needs/{entry['id']}/acknowledge")
    admin.post(f"needs/{entry['id']}/snooze", {"until": (now + timedelta(hours=2)).isoformat()})
    admin.post(f"needs/{entry['id']}/assign", {"assignee": "ada"})
    if worse == "node":
        add_fault(racks[3], timezone.now())
    else:
        NeedAct.objects.update(severity="degraded")
    [later] = entries(admin)
    assert (later["id"], later["snoozed_until"], later["acknowledged_by"]) == (entry["id"], None, "")
    assert later["assigned_to"] == "user:ada"


def test_a_cause_that_begins_again_is_new(racks: list[Node], admin: Api, now: datetime) -> None:
    [entry] = entries(admin)
    admin.post(f"needs/{entry['id']}/acknowledge")
    admin.post(f"needs/{entry['id']}/note", {"text": "seen"})
    Incident.objects.update(opened_at=timezone.now() + timedelta(seconds=1))
    [again] = entries(admin)
    assert (again["id"], again["acknowledged_by"], again["notes"]) == (entry["id"], "", [])


def test_a_snooze_ends_by_itself(racks: list[Node], admin: Api, now: datetime) -> None:
    [entry] = entries(admin)
    admin.post(f"needs/{entry['id']}/snooze", {"until": (now + timedelta(hours=2)).isoformat()})
    NeedAct.objects.update(until=now)
    assert admin.get("needs").json()["count"] == 1


def test_many_notes_of_one_person_do_not_hide_notes_of_others(racks: list[Node], admin: Api, now: datetime) -> None:
    add_fault(racks[3], now, code="62")
    flooded, other = sorted(entries(admin), key=lambda entry: -len(entry["nodes"]))
    for entry in (flooded, other):
        assert admin.post(f"needs/{entry['id']}/acknowledge").status_code == 200
        admin.post(f"needs/{entry['id']}/note", {"text": "spare part is on its way"})
    row = NeedAct.objects.filter(need=flooded["id"]).latest("pk")
    row.by, row.text = "user:olga", "x" * 500
    NeedAct.objects.bulk_create([NeedAct(**{**_columns(row), "pk": None}) for _ in range(2100)])
    for entry in entries(admin):
        own = [note for note in entry["notes"] if note["by"] == "user:ada"]
        assert (entry["acknowledged_by"], len(own)) == ("user:ada", 1), entry["id"]
        assert len(entry["notes"]) == (21 if entry["id"] == flooded["id"] else 1)


def _columns(row: NeedAct) -> dict[str, Any]:
    return {column.attname: getattr(row, column.attname) for column in NeedAct._meta.concrete_fields}


def test_invalid_acts_on_needs_are_refused(waiting: dict[str, str], admin: Api, viewer: Api, now: datetime) -> None:
    by_kind = {entry["kind"]: entry["id"] for entry in entries(admin)}
    later = (now + timedelta(hours=1)).isoformat()
    for kind in ("approval", "ledger"):
        refused = problem(admin.post(f"needs/{by_kind[kind]}/snooze", {"until": later}), 409)
        assert refused["code"] == "need_not_snoozed"
    path = f"needs/{by_kind['incident']}"
    for until in (now - timedelta(seconds=1), now + services.MAX_SNOOZE + timedelta(minutes=1)):
        assert set(fields(admin.post(f"{path}/snooze", {"until": until.isoformat()}))) == {"until"}
    assert set(fields(admin.post(f"{path}/assign", {"assignee": "nobody"}))) == {"assignee"}
    assert set(fields(admin.post(f"{path}/note", {"text": " "}))) == {"text"}
    assert problem(admin.post("needs/0123456789abcdef/note", {"text": "x"}), 404)["code"] == "need_unknown"
    for verb, body in (
        ("acknowledge", {}),
        ("unacknowledge", {}),
        ("assign", {"assignee": ""}),
        ("snooze", {"until": later}),
        ("note", {"text": "x"}),
    ):
        problem(viewer.post(f"{path}/{verb}", body), 403)
    assert not NeedAct.objects.exists()


def test_a_pool_has_its_part_of_a_cause_and_no_more(
    racks: list[Node], admin: Api, east: Cluster, now: datetime
) -> None:
    west = Cluster.objects.create(name="west", created_at=now)
    bob = person("bob", "viewer", now, cluster=west)
    accounts.bind(User.objects.get(username="bob"), "operator", cluster=east, pool="b", actor="test", now=now)
    [whole], [part] = entries(admin), entries(bob)
    assert (part["id"], part["nodes"]) == (whole["id"], ["gpu-3"])
    assert bob.post(f"needs/{part['id']}/snooze", {"until": (now + timedelta(hours=1)).isoformat()}).status_code == 200
    bob.post(f"needs/{part['id']}/note", {"text": "ours"})
    assert (bob.get("needs").json()["count"], admin.get("needs").json()["count"]) == (0, 1)
    Incident.objects.filter(node__name="gpu-3").delete()
    assert entries(admin)[0]["notes"] == []  # of a node that it has no more
    problem(caller("operator", now, cluster=west).post(f"needs/{whole['id']}/acknowledge"), 404)
    problem(Api().get("needs"), 401)
    assert "nonsense" in fields(admin.get("needs?nonsense=1"))


def test_the_list_costs_the_same_for_one_row_and_for_three(racks: list[Node], viewer: Api, now: datetime) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as asked:
            viewer.get("needs")
        return len(asked)

    viewer.get("needs")
    three = cost()
    Incident.objects.exclude(node__name="gpu-1").delete()
    assert (cost(), three) == (15, 15)
