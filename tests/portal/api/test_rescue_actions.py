"""The decision systems' door: KCE's body, KCE's answers, our guards."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from kcover_portal.accounts import services as accounts
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.fleet.services import cluster_settings, repeated_windows
from kcover_portal.ledger.models import Entry
from kcover_portal.lib import outgoing
from kcover_portal.lib.errors import FieldError
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from tests.codes import code_of
from tests.portal.api.conftest import Api, add_node, person

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(east: Cluster, now: datetime) -> Node:
    return add_node(east, "gpu-1", now)


def caller(cluster: Cluster | None, now: datetime, *scopes: str, kind: str = "decision") -> Api:
    _, secret = accounts.make_token(kind, cluster=cluster, scopes=scopes, created_by="test", now=now)
    return Api(secret)


def asked(node: str = "gpu-1", *actions: str, **more: Any) -> dict[str, Any]:
    named = [{"name": name, "waittime": "", "maps": []} for name in actions or ("cordon",)]
    return {"nodeName": node, "xid": 79, "escalateTime": "", "actions": named, **more}


def test_an_unread_request_has_an_error_in_the_format_of_kce(node: Node, east: Cluster, now: datetime) -> None:
    headers = caller(east, now).headers
    for status, answer in (
        (401, Client().post("/api/v1/rescue-actions", asked(), content_type="application/json")),
        (
            415,
            Client().post("/api/v1/rescue-actions", "x", content_type="text/plain", headers=headers),
        ),
    ):
        assert (answer.status_code, set(answer.json()), answer.json()["code"]) == (status, {"code", "message"}, "Error")
        assert answer.json()["message"]


def test_success_is_kces_and_names_the_rescue(node: Node, east: Cluster, now: datetime) -> None:
    api = caller(east, now)
    answer = api.post("rescue-actions", asked("gpu-1", "cordon", "drain"))
    rescue = Rescue.objects.get()
    assert (answer.status_code, answer.json()) == (
        201,
        {"code": "Success", "message": "Success", "rescueId": rescue.pk},
    )
    assert (rescue.origin, rescue.code, rescue.state) == ("api", "xid 79", "running")
    assert [step.name for step in rescue.steps.all()] == ["cordon", "drain"]
    assert rescue.request["nodeName"] == "gpu-1"
    assert code_of(rescue.opened_because) == "requested_by_system"
    again = api.post("rescue-actions", asked("gpu-1", "cordon", "drain"))
    assert (again.status_code, again.json()["rescueId"]) == (200, rescue.pk)
    other = api.post("rescue-actions", asked("gpu-1", "cordon"))
    assert other.status_code == 409
    assert other.json()["message"].startswith("Failures to meet preconditions ")


def test_parameters_come_before_preconditions_and_preconditions_before_the_limit(
    node: Node, east: Cluster, now: datetime
) -> None:
    cluster_settings.set_guards(east, {"plans": {"limit": 1}}, actor="t", reason="", now=now)
    add_node(east, "gpu-2", now)
    api = caller(east, now)
    assert api.post("rescue-actions", asked("gpu-2")).status_code == 201
    full = api.post("rescue-actions", asked())
    assert (full.status_code, full.json()) == (429, {"code": "Error", "message": "Exceed the maximum plans limit {1}"})
    assert "Retry-After" in full.headers
    unmet = api.post("rescue-actions", asked("gpu-1", "reboot"))
    assert (unmet.status_code, unmet.json()["code"]) == (409, "Error")
    assert unmet.json()["message"] == "Failures to meet preconditions reboot needs drain"
    wrong = api.post("rescue-actions", asked("nobody", "reboot"))
    assert wrong.status_code == 409
    gone = api.post("rescue-actions", asked("nobody"))
    assert (gone.status_code, gone.json()["message"]) == (400, "Parameter error:no such node nobody in cluster east")
    garbled = api.client.post("/api/v1/rescue-actions", "{", content_type="application/json", headers=api.headers)
    assert (garbled.status_code, garbled.json()["code"]) == (400, "Error")


def test_the_cluster_is_the_tokens_or_the_querys(node: Node, east: Cluster, west: Cluster, now: datetime) -> None:
    wide = caller(None, now)
    assert wide.post("rescue-actions", asked()).json()["message"].startswith("Parameter error:cluster is missing")
    assert wide.post("rescue-actions?cluster=east&cluster=west", asked()).status_code == 400
    assert wide.post("rescue-actions?cluster=south", asked()).status_code == 400
    assert caller(west, now).post("rescue-actions?cluster=east", asked()).status_code == 400
    assert wide.post("rescue-actions?cluster=east", asked()).status_code == 201


def test_a_viewer_token_cannot_request_actions(node: Node, east: Cluster, now: datetime) -> None:
    assert caller(east, now, kind="viewer").post("rescue-actions", asked()).status_code == 403
    assert not Rescue.objects.exists()


def test_inv_11_the_same_guards_hold_it_back_unless_the_token_may_override(
    node: Node, east: Cluster, now: datetime
) -> None:
    cluster_settings.set_guards(east, {"floor": {"percent": 100}}, actor="t", reason="", now=now)
    plain, scoped = caller(east, now), caller(east, now, "override")
    held = plain.post("rescue-actions", asked())
    assert (held.status_code, "must keep at least" in held.json()["message"]) == (409, True)
    assert "no override scope" in plain.post("rescue-actions?override=floor", asked()).json()["message"]
    assert scoped.post("rescue-actions?override=gravity", asked()).status_code == 400
    made = scoped.post("rescue-actions?override=floor", asked())
    assert made.status_code == 201
    opened = Entry.objects.get(verb="rescue.opened")
    assert list(opened.data["overrides"]) == ["floor"]
    assert opened.data["overrides"]["floor"].startswith("token:decision")
    [passed] = caller(east, now, kind="viewer").get(f"rescues/{Rescue.objects.get().pk}").json()["passed_over"]
    assert (passed["guard"], passed["step"]) == ("floor", "")
    assert passed["by"].startswith("token:decision")
    assert "must keep at least" in passed["why"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"mode": "shadow"}, "Shadow mode"),
        ({"mode": "paused", "pause_reason": "fire"}, "paused: fire"),
        ({"decision_mode": "policies"}, "leaves decisions to policies"),
    ],
)
def test_modes_hold_it_back(node: Node, east: Cluster, now: datetime, fields: dict[str, str], says: str) -> None:
    Cluster.objects.update(**fields)
    answer = caller(east, now).post("rescue-actions", asked())
    assert (answer.status_code, says in answer.json()["message"]) == (409, True)
    assert not Rescue.objects.exists()


def test_a_refusal_under_a_key_is_in_the_ledger_and_the_key_can_be_used_again(
    node: Node, east: Cluster, now: datetime
) -> None:
    api = caller(east, now)
    Cluster.objects.update(mode="paused")
    for _ in range(2):
        assert api.post("rescue-actions", asked(), Idempotency_Key="k").status_code == 409
    [entry] = Entry.objects.filter(verb="request.refused")
    assert (entry.actor.startswith("token:decision"), entry.data["xid"]) == (True, 79)
    Cluster.objects.update(mode="enforce")
    assert api.post("rescue-actions", asked(), Idempotency_Key="k").status_code == 201


def test_in_approve_mode_an_action_waits_for_a_person(node: Node, east: Cluster, now: datetime) -> None:
    Cluster.objects.update(mode="approve")
    assert caller(east, now).post("rescue-actions", asked()).status_code == 201
    assert (Rescue.objects.get().state, Rescue.objects.get().hold) == ("held", "approval")


def test_an_action_expires_after_its_escalate_time(node: Node, east: Cluster, now: datetime) -> None:
    assert caller(east, now).post("rescue-actions", asked(escalateTime="30min")).status_code == 201
    rescue = Rescue.objects.get()
    late = rescue.opened_at + timedelta(minutes=31)
    services.run(rescue.pk, clock=lambda: late)
    rescue.refresh_from_db()
    assert (rescue.state, rescue.outcome, rescue.steps.get().attempts) == ("cancelled", "expired", 0)


def test_guards_are_read_and_changed_in_part(east: Cluster, now: datetime) -> None:
    api = person("root", "admin", now)
    before = api.get("clusters/east/guards").json()
    assert before["storm"] == {"enabled": True, "nodes": 3, "percent": 3, "window": 300}
    assert (before["budget"]["limit"], before["floor"]["percent"], before["cooldown"]) == (None, None, 0)
    change = {"storm": {"enabled": False}, "hold_down": 5, "reason": "drill"}
    after = api.call("patch", "clusters/east/guards", change)
    assert (after.status_code, after.json()["storm"]["enabled"], after.json()["storm"]["nodes"]) == (200, False, 3)
    assert api.get("clusters/east/guards").json() == after.json()
    assert Cluster.objects.get(name="east").hold_down == 5
    entry = Entry.objects.get(verb="cluster.guards")
    assert entry.data["changed"]["hold_down"] == {"before": 30, "after": 5}
    assert entry.data["reason"] == "drill"
    wrong = api.call("patch", "clusters/east/guards", {"storm": {"nodes": 0}, "cooldown": 9})
    error = wrong.json()["errors"][0]
    assert (wrong.status_code, error["field"], error["code"]) == (400, "storm.nodes", "number_out_of_range")
    assert api.get("clusters/east/guards").json()["cooldown"] == 0
    for kind in ("viewer", "operator"):  # guards need an admin
        assert caller(None, now, kind=kind).call("patch", "clusters/east/guards", {}).status_code == 403


def test_a_maintenance_window_is_announced_and_ended(east: Cluster, node: Node) -> None:
    now = datetime.now().astimezone()
    api = caller(None, now, kind="operator")
    window = {
        "cluster": "east",
        "starts_at": now.isoformat(),
        "ends_at": (now + timedelta(hours=1)).isoformat(),
        "reason": "new switches",
    }
    made = api.post("maintenance", window)
    assert made.status_code == 201, made.content
    assert api.get("maintenance").json()["results"][0]["reason"] == "new switches"
    assert api.post("maintenance", {**window, "ends_at": now.isoformat()}).json()["errors"][0]["field"] == "ends_at"
    assert api.post("maintenance", {**window, "pool": "a", "node": "b"}).status_code == 400
    assert api.post("maintenance", {**window, "cluster": None, "pool": "a"}).status_code == 400
    assert api.call("delete", f"maintenance/{made.json()['id']}").status_code == 204
    assert list(Entry.objects.filter(verb__startswith="maintenance").values_list("verb", flat=True)) == [
        "maintenance.ended",
        "maintenance.opened",
    ]


def test_a_maintenance_window_repeats_and_all_of_it_ends(east: Cluster, node: Node) -> None:
    now = datetime.now().astimezone()
    api, begins = caller(None, now, kind="operator"), now + timedelta(hours=1)
    window = {"cluster": "east", "starts_at": begins.isoformat(), "ends_at": (begins + timedelta(hours=1)).isoformat()}
    weekly = {"every": "week", "zone": "Europe/Berlin", "until": (begins + timedelta(days=15)).isoformat()}
    for wrong, field, code in (
        ({"every": "month"}, "repeats.every", "invalid_choice"),
        ({"zone": "Mars/Base"}, "repeats.zone", "repeat_zone_unknown"),
        ({"until": now.isoformat()}, "repeats.until", "repeat_never"),
        ({"every": "day", "until": (now + timedelta(days=90)).isoformat()}, "repeats.until", "repeat_too_many"),
        ({"days": 3}, "days", "unknown_field"),
    ):
        refused = api.post("maintenance", {**window, "reason": "r", "repeats": {**weekly, **wrong}})
        [error] = refused.json()["errors"]
        assert (refused.status_code, error["field"], error["code"]) == (400, field, code)
    assert not Maintenance.objects.exists()
    made = api.post("maintenance", {**window, "reason": "r", "repeats": weekly}).json()
    rows = Maintenance.objects.all()
    assert [str(row.series) for row in rows] == [made["series"]] * 3
    assert made["repeats"]["zone"] == "Europe/Berlin"
    assert api.call("delete", f"maintenance/{made['id']}?series=true").status_code == 204
    assert not Maintenance.objects.exists()


def test_the_rows_of_a_series_are_bounded() -> None:
    repeated_windows.check_size(5_000, 10)
    repeated_windows.check_size(repeated_windows.MAX_NAMES + 1, 1)
    with pytest.raises(FieldError) as refused:
        repeated_windows.check_size(5_000, 11)
    assert refused.value.reason.code == "repeat_too_large"


@pytest.mark.parametrize(
    ("scope", "field", "code", "params"),
    [
        ({"pool": "h100"}, "pool", "pool_without_nodes", {"pool": "h100", "pools": "a"}),
        ({"node": "gpu-01"}, "node", "node_misspelt", {"node": "gpu-01", "near": "gpu-1"}),
        ({"node": "cpu-99"}, "node", "nodes_missing", {"nodes": "cpu-99"}),
    ],
)
def test_a_window_that_covers_no_node_is_refused(
    east: Cluster, node: Node, scope: dict[str, str], field: str, code: str, params: dict[str, str]
) -> None:
    now = datetime.now().astimezone()
    times = {"starts_at": now.isoformat(), "ends_at": (now + timedelta(hours=1)).isoformat()}
    refused = caller(None, now, kind="operator").post(
        "maintenance", {"cluster": "east", **scope, **times, "reason": "new switches"}
    )
    [error] = refused.json()["errors"]
    assert (refused.status_code, error["field"], error["code"]) == (400, field, code)
    assert error["params"] == {"cluster": "east", **params}
    assert not Maintenance.objects.exists()


def test_settings_of_a_cluster_are_changed_all_or_none(east: Cluster, now: datetime) -> None:
    api = caller(None, now, kind="operator")
    changed = api.call("patch", "clusters/east", {"decision_mode": "external", "drills": "record", "reason": "trial"})
    assert (changed.status_code, changed.json()["decision_mode"]) == (200, "external")
    assert Entry.objects.get(verb="cluster.changed").data["changed"]["drills"] == {"before": "act", "after": "record"}
    wrong = api.call("patch", "clusters/east", {"drills": "act", "ready_within": 5})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (400, "ready_within")
    for trusted in ({"event_namespace": "train"}, {"drills": "act"}):  # who may report faults
        assert api.call("patch", "clusters/east", trusted).status_code == 403
    assert Cluster.objects.get(name="east").drills == "record"
    assert api.call("patch", "clusters/east", {"decision_url": "https://x.example"}).status_code == 403
    paused = api.call("patch", "clusters/east", {"mode": "paused", "reason": "fire"}).json()
    assert (paused["mode"], paused["pause_reason"]) == ("paused", "fire")


@pytest.fixture
def given(node: Node, now: datetime) -> Rescue:
    """A rescue whose node another system has."""
    node.cluster.decision_secret = "shared"
    node.cluster.save()
    rescue = Rescue.objects.create(
        cluster=node.cluster,
        node=node,
        origin="policy",
        requested_by="policy:a#1",
        plan_hash="x",
        state="waiting",
        hold="external",
        opened_at=now,
        due_at=now + timedelta(hours=1),
    )
    rescue.steps.create(
        index=0, name="webhook", state="waiting", attempts=1, progress={"given_at": now.isoformat()}, started_at=now
    )
    return rescue


def called_back(rescue: int, body: bytes, *, secret: str = "shared") -> Any:
    headers = {outgoing.SIGNATURE: outgoing.signature(secret, f"{rescue}\n".encode() + body)}
    return Api().client.post(
        f"/api/v1/rescues/{rescue}/callback", body, content_type="application/json", headers=headers
    )


def test_inv_10_only_a_signed_callback_of_the_other_system_gives_a_node_back(given: Rescue) -> None:
    word = b'{"outcome": "done"}'
    assert called_back(given.pk, word, secret="guessed").status_code == 403
    assert called_back(given.pk + 1, word).status_code == 403
    assert called_back(given.pk, b'{"outcome": "maybe"}').status_code == 400
    given.refresh_from_db()
    assert given.state == "waiting"
    for _ in range(2):
        answer = called_back(given.pk, word)
        assert (answer.status_code, answer.json()["rescueId"]) == (200, given.pk)
    given.refresh_from_db()
    assert given.state == "running"
    assert called_back(given.pk, b'{"outcome": "failed"}').status_code == 409
    assert Entry.objects.filter(verb="rescue.called_back").count() == 1


def test_a_callback_about_another_delivery_is_a_conflict_that_names_this_one(given: Rescue) -> None:
    answer = called_back(given.pk, b'{"outcome": "done", "delivery": "webhook-9-9-9"}')
    assert (answer.status_code, f"webhook-{given.pk}-0-0" in answer.json()["detail"]) == (409, True)
    body = b'{"outcome": "done", "delivery": "webhook-%d-0-0"}' % given.pk
    assert called_back(given.pk, body).status_code == 200


def test_inv_10_an_operator_takes_over_a_node(given: Rescue, now: datetime) -> None:
    api = caller(None, now, kind="operator")
    taken = api.post(f"rescues/{given.pk}/take-over", {"reason": "it is silent"})
    assert (taken.status_code, taken.json()["state"]) == (200, "held")
    assert api.post(f"rescues/{given.pk}/take-over", {"reason": "again"}).status_code == 409


def test_inv_11_no_other_endpoint_grants_a_program_more(node: Node, east: Cluster, now: datetime) -> None:
    Cluster.objects.update(mode="approve")
    made = caller(east, now, kind="operator").post("nodes/east/gpu-1/reboot", {"reason": "script"})
    assert (made.status_code, made.json()["state"]) == (201, "held")
    Rescue.objects.all().delete()
    Cluster.objects.update(mode="enforce", decision_mode="policies")
    refused = caller(east, now).post("nodes/east/gpu-1/reboot", {"reason": "script"})
    assert (refused.status_code, "decision_mode policies" in refused.json()["detail"]) == (409, True)


def test_a_decision_system_cannot_change_its_own_limits(east: Cluster, now: datetime) -> None:
    api = caller(None, now)
    assert api.call("patch", "clusters/east/guards", {"breaker": {"enabled": False}}).status_code == 403
    assert api.call("patch", "clusters/east", {"mode": "enforce"}).status_code == 403
    operator = caller(None, now, kind="operator")
    assert operator.call("patch", "clusters/east", {"job_image": "evil"}).status_code == 403
