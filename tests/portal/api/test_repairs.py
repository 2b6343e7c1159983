"""``/repairs``: report, read, change, and the verbs."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger.models import Entry
from kcover_portal.repairs.models import Repair
from tests.portal.api.conftest import Api, add_node, caller, fields, problem
from tests.portal.repairs.conftest import add_validation

pytestmark = pytest.mark.django_db
MACHINE = {"cluster": "east", "node": "gpu-1", "serial": "M1"}
PART = {"kind": "gpu", "serial": "S-gpu-1", "slot": "0"}
REPORT: dict[str, Any] = {"machine": MACHINE, "part": PART, "vendor": "ACME", "queue": "rma", "reason": "it sparks"}
WHY = {"reason": "because"}


@pytest.fixture
def repair(node: Node, operator: Api) -> int:
    answer = operator.post("repairs", REPORT)
    assert answer.status_code == 201, answer.content
    pk: int = answer.json()["id"]
    return pk


def move(api: Api, pk: int, *verbs: str) -> dict[str, Any]:
    """The repair after these verbs."""
    found: dict[str, Any] = {}
    for verb in verbs:
        answer = api.post(f"repairs/{pk}/{verb}", WHY)
        assert answer.status_code == 200, answer.content
        found = answer.json()
    return found


def test_a_repair_has_the_promised_shape(repair: int, viewer: Api) -> None:
    row = viewer.get(f"repairs/{repair}").json()
    assert (row["state"], row["machine"], row["part"]) == ("reported", MACHINE, PART)
    assert (row["vendor"], row["queue"], row["ticket"], row["assignee"], row["due"]) == ("ACME", "rma", "", "", None)
    assert (row["rescue"], row["verbs"]) == (None, ["accept", "refuse"])
    assert len(row["opened_because"]) == 1
    assert row["opened_because_reasons"][0]["code"] == "repair_reported_by_because"
    assert row["reported_at"]
    assert viewer.ids("repairs") == [repair]


def test_a_repair_goes_from_report_to_proof(repair: int, node: Node, operator: Api) -> None:
    due = (timezone.now() + timedelta(days=3)).isoformat()
    accepted = operator.post(f"repairs/{repair}/accept", {**WHY, "assignee": "bo", "due": due}).json()
    assert (accepted["state"], accepted["assignee"]) == ("accepted", "bo")
    handed = operator.post(f"repairs/{repair}/hand-over", {**WHY, "action": "replace"}).json()
    assert (handed["state"], handed["action"]) == ("in_repair", "replace")
    back = operator.post(f"repairs/{repair}/return", {**WHY, "part": {"serial": "S-new"}}).json()
    assert (back["state"], back["part"]) == ("returned", {**PART, "serial": "S-new"})
    assert problem(operator.post(f"repairs/{repair}/close", WHY), 409)["code"] == "repair_not_validated"
    add_validation(node, at=timezone.now())
    closed = operator.post(f"repairs/{repair}/close", WHY).json()
    assert (closed["state"], closed["verbs"]) == ("closed", [])
    assert problem(operator.post(f"repairs/{repair}/accept", WHY), 409)["code"] == "repair_closed_already"


def test_a_refused_repair_goes_back_to_the_role_that_reported_it(
    repair: int, node: Node, operator: Api, admin: Api
) -> None:
    refused = move(operator, repair, "accept", "refuse")
    assert (refused["state"], refused["assignee"], refused["opened_role"]) == ("refused", "role:operator", "operator")
    assert refused["opened_by"].startswith("token:")
    assert move(admin, repair, "accept")["assignee"] == "ada"
    own = admin.post("repairs", {**REPORT, "part": {"kind": "nic"}}).json()["id"]
    assert move(admin, own, "refuse")["assignee"] == "role:admin"


def test_a_report_names_other_open_repairs_of_the_machine(repair: int, operator: Api) -> None:
    add_node(Cluster.objects.get(name="east"), "gpu-2", timezone.now())
    made = [
        operator.post("repairs", {**REPORT, "machine": {**MACHINE, "node": node}, "part": {}}).json()["beside"]
        for node in ("gpu-1", "gpu-2")
    ]
    assert made == [[repair], []]


@pytest.mark.parametrize("verb", ["hand-over", "return", "close"])
def test_a_move_out_of_turn_is_a_conflict(repair: int, operator: Api, verb: str) -> None:
    refused = problem(operator.post(f"repairs/{repair}/{verb}", WHY), 409)
    assert (refused["code"], refused["params"]["possible"]) == ("repair_verb_not_now", "accept, refuse")


def test_an_unknown_move_and_an_unknown_repair(repair: int, operator: Api) -> None:
    assert problem(operator.post(f"repairs/{repair}/explode", WHY), 404)["code"] == "repair_verb_unknown"
    problem(operator.post("repairs/999/accept", WHY), 404)
    problem(operator.get("repairs/999"), 404)


def test_a_part_has_one_open_repair(repair: int, operator: Api) -> None:
    refused = problem(operator.post("repairs", REPORT), 409)
    assert (refused["code"], refused["params"]["repair"]) == ("repair_open_already", str(repair))
    assert operator.post("repairs", {**REPORT, "part": {"kind": "nic"}}).status_code == 201
    assert operator.post("repairs", {"machine": {"cluster": "east", "node": "gpu-1"}, **WHY}).status_code == 201


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"machine": {"cluster": "east", "node": "gpu-9"}}, "machine.node"),
        ({"machine": {"cluster": "north", "node": "gpu-1"}}, "machine.node"),
        ({"machine": {"cluster": "east"}}, "machine.node"),
        ({"machine": "gpu-1"}, "machine"),
        ({"part": {"kind": "a b"}}, "part"),
        ({"part": {"colour": "red"}}, "colour"),
        ({"due": "2020-01-01T00:00:00Z"}, "due"),
        ({"due": "soon"}, "due"),
        ({"reason": ""}, "reason"),
        ({"state": "closed"}, "state"),
    ],
)
def test_a_bad_report_names_its_field(node: Node, operator: Api, changes: dict[str, Any], field: str) -> None:
    assert field in fields(operator.post("repairs", {**REPORT, **changes}))
    assert not Repair.objects.exists()


def test_details_are_changed_all_or_none(repair: int, operator: Api) -> None:
    changes = {"ticket": "OPS-1", "machine": {"serial": "M2"}, "part": {"slot": "1"}, "reason": "found it"}
    row = operator.call("patch", f"repairs/{repair}", changes).json()
    assert (row["ticket"], row["machine"]["serial"], row["part"]) == ("OPS-1", "M2", {**PART, "slot": "1"})
    bad = {"ticket": "OPS-2", "due": "2020-01-01T00:00:00Z", "reason": "x"}
    assert "due" in fields(operator.call("patch", f"repairs/{repair}", bad))
    assert Repair.objects.get().ticket == "OPS-1"
    assert "reason" in fields(operator.call("patch", f"repairs/{repair}", {"ticket": "x"}))
    assert "action" in fields(operator.call("patch", f"repairs/{repair}", {"action": "x", **WHY}))


def test_a_field_that_is_wrong_is_named(repair: int, operator: Api) -> None:
    far = {**WHY, "due": "9999-12-31T23:59:59Z"}
    assert set(fields(operator.post(f"repairs/{repair}/accept", far))) == {"due"}
    assert "reason" in fields(operator.post(f"repairs/{repair}/accept", {}))


def test_repairs_are_filtered(repair: int, east: Cluster, now: datetime, operator: Api) -> None:
    add_node(east, "gpu-2", now)
    other = operator.post("repairs", {**REPORT, "machine": {"cluster": "east", "node": "gpu-2"}, "vendor": "B"})
    pk = other.json()["id"]
    move(operator, pk, "accept")
    Repair.objects.filter(pk=pk).update(due=timezone.now() - timedelta(minutes=1), assignee="bo")
    for query, found in {
        "node=gpu-1": [repair],
        "cluster=west": [],
        "state=accepted": [pk],
        "state=accepted&state=reported": [pk, repair],
        "vendor=ACME": [repair],
        "assignee=bo": [pk],
        "overdue=true": [pk],
        "overdue=false": [repair],
        "needs_person=true": [pk],
        "serial=M1": [repair],
        "q=gpu-2": [pk],
        "part=gpu": [pk, repair],
    }.items():
        assert operator.ids(f"repairs?{query}") == found, query
    assert "state" in fields(operator.get("repairs?state=broken"))
    assert "overdue" in fields(operator.get("repairs?overdue=maybe"))
    first = operator.get("repairs?page_size=1").json()
    assert ([row["id"] for row in first["results"]], bool(first["next"])) == ([pk], True)


def test_a_key_acts_once(node: Node, operator: Api) -> None:
    made = [operator.post("repairs", REPORT, Idempotency_Key="a").json()["id"] for _ in range(2)]
    assert made[0] == made[1]
    for _ in range(2):
        assert operator.post(f"repairs/{made[0]}/accept", WHY, Idempotency_Key="b").json()["state"] == "accepted"
    assert Entry.objects.filter(verb="repair.accepted").count() == 1


@pytest.mark.parametrize(("kind", "status"), [("viewer", 403), ("decision", 403), ("operator", 200)])
def test_roles_limit_repair_requests(repair: int, now: datetime, kind: str, status: int) -> None:
    api = caller(kind, now)
    assert api.get("repairs").status_code == 200
    assert api.post(f"repairs/{repair}/accept", WHY).status_code == status
    assert api.call("patch", f"repairs/{repair}", {"ticket": "x", **WHY}).status_code == status
    assert api.post("repairs", {**REPORT, "part": {"kind": "nic"}}).status_code == (201 if status == 200 else status)


def test_repairs_of_other_clusters_are_not_seen(repair: int, west: Cluster, now: datetime) -> None:
    stranger = caller("operator", now, cluster=west)
    assert stranger.ids("repairs") == []
    problem(stranger.get(f"repairs/{repair}"), 404)
    problem(stranger.post(f"repairs/{repair}/accept", WHY), 404)
    assert "machine.node" in fields(stranger.post("repairs", REPORT))
    problem(Api().get("repairs"), 401)


def test_terms_of_vendors(node: Node, admin: Api, operator: Api, viewer: Api) -> None:
    terms = {"vendor": "ACME", "accept_days": 2, "reason": "contract"}
    assert admin.call("put", "repairs/terms", terms).status_code == 200
    [row] = viewer.get("repairs/terms").json()
    assert (row["vendor"], row["accept_days"], row["return_days"]) == ("ACME", 2, None)
    assert operator.post("repairs", REPORT).json()["due"] is not None
    problem(operator.call("put", "repairs/terms", terms), 403)
    assert "accept_days" in fields(admin.call("put", "repairs/terms", {**terms, "accept_days": 0}))
    assert "reason" in fields(admin.call("put", "repairs/terms", {"vendor": "ACME"}))
    assert admin.call("put", "repairs/terms", {"vendor": "ACME", **WHY}).json() == []
