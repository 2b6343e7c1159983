"""Acts over REST: who may, dry runs, repeats under one key, refusals."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken, RoleBinding, User
from kcover_portal.api.models import Answered
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.kube.port import KUBEFLOW_JOB_LABEL
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Approval, Rescue, Step
from kcover_portal.runtime.models import Installation
from tests.codes import code_of
from tests.portal.api.conftest import Api, add_node, add_story, caller, fields, person, problem, run_job

pytestmark = pytest.mark.django_db


# --- who is asking


def test_a_request_without_credentials_gets_401_with_the_bearer_scheme() -> None:
    response = Api().get("nodes")
    assert problem(response, 401)["detail"] == "Authentication credentials were not provided."
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="kcover portal"'


def test_a_token_out_of_force_is_refused(now: datetime) -> None:
    assert problem(Api("kcv_nonsense").get("nodes"), 401)["code"] == "token_invalid"
    token, secret = accounts.make_token("viewer", created_by="t", now=now)
    assert Api(secret).get("nodes").status_code == 200
    accounts.revoke_token(token, actor="t", now=now)
    problem(Api(secret).get("nodes"), 401)


def test_an_agent_token_is_refused_with_the_addresses_that_accept_it(east: Cluster, now: datetime) -> None:
    for node in ("", "gpu-1"):
        _, secret = accounts.make_token("agent", cluster=east, node=node, created_by="t", now=now)
        assert problem(Api(secret).get("policies"), 403)["detail"] == (
            "Agent tokens can only be used for /api/v1/agent/ and preflight reports."
        )


def test_a_session_needs_the_csrf_token_to_act(east: Cluster, now: datetime) -> None:
    accounts.make_user("anna", password="correct horse battery", role="admin", created_by="t", now=now)
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get())
    assert client.get("/api/v1/nodes").status_code == 200
    response = client.post("/api/v1/pause", {"reason": "x"}, content_type="application/json")
    assert problem(response, 403)["code"] == "csrf_failed"
    assert not Installation.objects.exists()


# --- refusals that are no act at all


def test_an_unknown_address_is_a_problem_document(viewer: Api) -> None:
    for path in ("nothing", "nothing/", "clusters/east/guard", ""):
        assert "No endpoint at /api/v1/" in problem(viewer.get(path), 404)["detail"]
    problem(Api().post("nothing"), 404)
    problem(viewer.client.get("/api/v2/nodes"), 404)
    assert viewer.client.get("/api/docs").headers["Location"] == "/api/docs/"


def test_a_method_that_is_not_answered(viewer: Api) -> None:
    response = viewer.call("delete", "nodes")
    problem(response, 405)
    assert "GET" in response.headers["Allow"]
    problem(viewer.get("pause"), 405)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("{", "Expecting property name"),
        ("[1, 2", "Expecting ',' delimiter: line 1 column 6"),
        ('{"a": NaN}', "NaN is not valid JSON; use null or omit the key"),
        ('{"a": -1e400}', "-1e400 is not valid JSON; use null or omit the key"),
        ('{"reason": "x", "reason": "y"}', 'duplicate key "reason"'),
        (b"\xff", "can't decode byte 0xff in position 0"),
        ("[" * 100_000, "nested deeper than 64"),
        ("[" * 65 + "]" * 65, "nested deeper than 64"),
        ('{"reason": "\\ud800"}', "contains a lone surrogate; remove it"),
        ('{"\\udfff": "x"}', "contains a lone surrogate; remove it"),
        ('{"reason": ' + "9" * 5000 + "}", "integer string conversion"),
    ],
)
def test_a_body_that_is_no_json(sent: str | bytes, reason: str, operator: Api) -> None:
    response = operator.client.post("/api/v1/pause", sent, content_type="application/json", headers=operator.headers)
    detail = problem(response, 400)["detail"]
    assert detail.startswith("Invalid JSON: ")
    assert reason in detail
    assert not Installation.objects.exists()


def test_a_body_of_another_media_type_is_refused_with_the_accepted_type(operator: Api) -> None:
    assert problem(operator.call("post", "pause", text="reason: x"), 415)["detail"] == (
        'Unsupported media type "application/yaml" in request. Send application/json.'
    )


def test_a_body_of_two_mebibytes_is_too_large(operator: Api) -> None:
    body = {"reason": "x" * (2 * 1024 * 1024)}
    assert problem(operator.post("pause", body), 413)["detail"] == (
        f"The body has {len(json.dumps(body))} bytes. The limit is 1048576."
    )
    assert not Installation.objects.exists()


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"reason": "x" * 501}, {"reason": "Ensure this field has no more than 500 characters."}),
        ({"reason": "x", "clutser": "east"}, {"clutser": "Unknown field."}),
        ({"reason": "x", "cluster": "mars"}, {"cluster": "Unknown cluster mars."}),
        ([], {"body": "Invalid data. Expected a dictionary, but got list."}),
    ],
)
def test_a_bad_field_is_named_with_the_reason(body: Any, named: dict[str, str], operator: Api) -> None:
    response = operator.call("post", "pause", body)
    assert fields(response) == named
    assert all(reason in response.json()["detail"] for reason in named.values())
    assert not Installation.objects.exists()


# --- the pause


def test_pausing_and_resuming_everything(operator: Api) -> None:
    answer = operator.post("pause", {"reason": "storm"})
    pause = answer.json()["pause"]
    shown = {"cluster": None, "mode": "paused", "reason": "storm", "pause": pause}
    assert (answer.status_code, answer.json()) == (200, shown)
    row = Installation.objects.get()
    assert (row.mode, row.reason) == ("paused", "storm")
    assert row.changed_by.startswith("token:operator kco_")
    answer = operator.post("resume", {"reason": "over", "mode": "approve", "pause": pause})
    assert answer.json() == {"cluster": None, "mode": "approve", "reason": "over", "pause": answer.json()["pause"]}
    assert Installation.objects.get().mode == "approve"
    assert fields(operator.post("resume", {"reason": "x", "mode": "paused"})) == {
        "mode": "Must be shadow, approve or enforce."
    }


@pytest.mark.parametrize("where", [None, "east"])
def test_a_resume_ends_only_the_pause_that_it_names(operator: Api, east: Cluster, where: str | None) -> None:
    known = operator.post("pause", {"reason": "drill", "cluster": where}).json()["pause"]
    operator.post("pause", {"reason": "wrong nodes", "cluster": where})
    body = {"reason": "over", "cluster": where, "pause": known}
    assert problem(operator.post("resume", body), 409)["code"] == "paused_meanwhile"
    now = operator.post("pause", {"cluster": where}).json()["pause"]
    assert operator.post("resume", body | {"pause": now}).json()["mode"] != "paused"


def test_a_token_of_one_cluster_pauses_only_that(east: Cluster, west: Cluster, now: datetime) -> None:
    here = caller("operator", now, cluster=east)
    assert here.post("pause", {"reason": "x", "cluster": "east"}).json()["mode"] == "paused"
    for verb in ("pause", "resume"):
        assert problem(here.post(verb, {"reason": "x"}), 403)["detail"] == (
            "Without a cluster this affects all clusters and requires the role operator for all of them. Name a cluster"
            ' in the body: {"cluster": "east", "reason": "..."}.'
        )
    assert fields(here.post("pause", {"reason": "x", "cluster": "west"})) == {"cluster": "Unknown cluster west."}
    east.refresh_from_db()
    west.refresh_from_db()
    assert (east.mode, east.pause_reason, west.mode) == ("paused", "x", "enforce")


@pytest.mark.parametrize("path", ["pause", "resume"])
def test_a_viewer_cannot_pause(path: str, viewer: Api) -> None:
    problem(viewer.post(path, {"reason": "x"}), 403)
    assert not Installation.objects.exists()


# --- acts on a node


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain", "reboot", "release", "exclude"])
def test_an_act_opens_a_rescue(verb: str, node: Node, operator: Api) -> None:
    response = operator.post(f"nodes/east/gpu-1/{verb}", {"reason": "because"})
    assert response.status_code == 201, response.content
    rescue = Rescue.objects.get()
    body = response.json()
    assert (body["id"], body["node"], body["state"], body["reason"]) == (rescue.pk, "gpu-1", "running", "because")
    assert next(step["name"] for step in body["steps"]) == {"drain": "cordon", "reboot": "cordon"}.get(verb, verb)
    assert (rescue.origin, rescue.requested_by.split(" ")[0]) == ("manual", "token:operator")
    assert response.headers["Location"] == f"http://testserver/api/v1/rescues/{rescue.pk}"


def test_a_decision_system_is_known_as_one(node: Node, now: datetime) -> None:
    assert caller("decision", now).post("nodes/east/gpu-1/cordon", {"reason": "x"}).status_code == 201
    assert Rescue.objects.get().origin == "api"


def test_a_dry_run_shows_the_plan_and_writes_nothing(node: Node, viewer: Api, now: datetime) -> None:
    before = Entry.objects.count()
    body = viewer.post("nodes/east/gpu-1/reboot?dry_run=true").json()
    assert (body["dry_run"], body["cluster"], body["node"], body["verb"]) == (True, "east", "gpu-1", "reboot")
    assert [step["name"] for step in body["steps"]] == ["cordon", "drain", "reboot", "ready", "verify", "uncordon"]
    assert body["held_back"] == []
    assert [pod["name"] for pod in body["pods"]] == ["train-0"]
    assert body["plan_hash"]
    assert (Rescue.objects.count(), Entry.objects.count()) == (0, before)
    add_story(node, now)
    held = viewer.post("nodes/east/gpu-1/reboot?dry_run=1").json()["held_back"]
    assert held == [f"Rescue {Rescue.objects.get().pk} is open on this node. Cancel it, or release the node."]


def test_a_dry_run_names_the_jobs_and_the_budgets_that_block_the_drain_now(node: Node, viewer: Api) -> None:
    kube = fleet.connect(node.cluster)
    run_job(kube, "llm", [1])
    kube.add_budget("train", "keep", match={KUBEFLOW_JOB_LABEL: "llm"})
    kube.add_budget("train", "loose", match={KUBEFLOW_JOB_LABEL: "llm"}, disruptions_allowed=1)
    kube.add_budget("train", "of-others", match={"app": "web"})
    body = viewer.post("nodes/east/gpu-1/drain?dry_run=true").json()
    assert (body["jobs"], body["budgets"]) == (["train/llm"], ["train/keep"])
    assert viewer.post("nodes/east/gpu-1/cordon?dry_run=true").json().items() >= {"jobs": None, "budgets": None}.items()
    kube.fail("budgets", port.RefusedByServer("forbidden"))
    body = viewer.post("nodes/east/gpu-1/drain?dry_run=true").json()
    assert (body["jobs"], body["budgets"], body["held_back"]) == (["train/llm"], None, [])


def test_a_refused_act_names_what_holds_it_back(node: Node, operator: Api, now: datetime) -> None:
    rescue = add_story(node, now)
    detail = problem(operator.post("nodes/east/gpu-1/cordon", {"reason": "x"}), 409)["detail"]
    assert detail == f"Rescue {rescue.pk} is open on this node. Cancel it, or release the node."
    assert Rescue.objects.count() == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nodes/east/gpu-9/cordon", 404),
        ("nodes/mars/gpu-1/cordon", 404),
        ("nodes/east/gpu-1/explode", 404),
        ("nodes/east/gpu-1/cordon?dry_run=maybe", 400),
        ("nodes/east/gpu-1/cordon?dryrun=true", 400),
    ],
)
def test_an_unknown_act_is_refused(path: str, status: int, node: Node, operator: Api) -> None:
    problem(operator.post(path, {"reason": "x"}), status)
    assert not Rescue.objects.exists()


@pytest.mark.parametrize("body", [None, {}, {"reason": ""}, {"reason": " \n"}, {"reason": None}])
def test_a_manual_act_requires_a_reason(body: Any, node: Node, operator: Api) -> None:
    refused = fields(operator.post("nodes/east/gpu-1/reboot", body))
    assert refused == {"reason": "A reason is required for manual actions."}
    assert not Rescue.objects.exists()
    assert operator.post("nodes/east/gpu-1/reboot?dry_run=true", {} if body == {"reason": None} else body).json()[
        "steps"
    ]


def test_a_viewer_and_an_operator_of_another_cluster_cannot_act(
    node: Node, west: Cluster, viewer: Api, now: datetime
) -> None:
    assert problem(viewer.post("nodes/east/gpu-1/cordon"), 403)["detail"] == (
        "Requires the role operator in cluster east."
    )
    problem(caller("operator", now, cluster=west).post("nodes/east/gpu-1/cordon"), 404)
    assert not Rescue.objects.exists()


# --- one key, one act


def test_a_repeated_key_gets_the_first_answer_and_acts_once(node: Node, operator: Api) -> None:
    first = operator.post("nodes/east/gpu-1/cordon", {"reason": "x"}, Idempotency_Key="k1")
    Rescue.objects.update(state="succeeded")
    again = operator.post("nodes/east/gpu-1/cordon", {"reason": "x"}, Idempotency_Key="k1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert Rescue.objects.count() == 1
    other = operator.post("nodes/east/gpu-1/cordon", {"reason": "x"}, Idempotency_Key="k2")
    assert other.status_code == 201
    assert Rescue.objects.count() == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("nodes/east/gpu-1/drain", {"reason": "x"}),
        ("nodes/east/gpu-1/cordon", {"reason": "y"}),
        ("pause", {"reason": "x"}),
    ],
)
def test_a_key_is_good_for_one_request(path: str, body: dict[str, str], node: Node, operator: Api) -> None:
    operator.post("nodes/east/gpu-1/cordon", {"reason": "x"}, Idempotency_Key="k1")
    detail = problem(operator.post(path, body, Idempotency_Key="k1"), 422)["detail"]
    assert detail == "Idempotency-Key k1 was used for a different request. Use a new key."
    assert Rescue.objects.count() == 1
    assert not Installation.objects.exists()


def test_keys_of_two_callers_do_not_meet(node: Node, operator: Api, now: datetime) -> None:
    add_node(node.cluster, "gpu-2", now)
    operator.post("nodes/east/gpu-1/cordon", {"reason": "x"}, Idempotency_Key="k")
    assert (
        caller("operator", now).post("nodes/east/gpu-2/cordon", {"reason": "x"}, Idempotency_Key="k").status_code == 201
    )
    assert Rescue.objects.count() == 2


@pytest.mark.parametrize(
    ("role", "where", "status"), [("viewer", "east", 403), ("operator", "west", 404), (None, None, 403)]
)
def test_a_stored_answer_is_given_only_with_todays_right(
    node: Node, east: Cluster, west: Cluster, now: datetime, role: str | None, where: str | None, status: int
) -> None:
    olga, body = person("olga", "operator", now, cluster=east), {"cluster": "east", "reason": "leak"}
    first = olga.post("pause", body, Idempotency_Key="p1")
    assert olga.post("pause", body, Idempotency_Key="p1").json() == first.json()
    RoleBinding.objects.all().delete()
    if role and where:
        user = User.objects.get(username="olga")
        accounts.bind(user, role, cluster=Cluster.objects.get(name=where), actor="t", now=now)
    refused = problem(olga.post("pause", body, Idempotency_Key="p1"), status)
    assert refused["code"] == {403: "role_required", 404: "not_found"}[status] if role else "no_role"
    accounts.bind(User.objects.get(username="olga"), "operator", cluster=None, actor="t", now=now)
    assert olga.post("pause", body, Idempotency_Key="p1").json() == first.json()


def test_a_refused_request_may_be_sent_again_under_its_key(node: Node, operator: Api, now: datetime) -> None:
    rescue = add_story(node, now)
    problem(operator.post("nodes/east/gpu-1/cordon", {"reason": "x"}, Idempotency_Key="k"), 409)
    assert not Answered.objects.exists()
    Rescue.objects.filter(pk=rescue.pk).update(state="failed")
    assert operator.post("nodes/east/gpu-1/cordon", {"reason": "x"}, Idempotency_Key="k").status_code == 201


def test_a_refused_request_is_in_the_ledger_with_a_key_and_without_one(
    node: Node, operator: Api, now: datetime
) -> None:
    add_story(node, now)
    for key in ({}, {"Idempotency_Key": "k"}, {"Idempotency_Key": "k"}):
        for verb in ("cordon", "drain") if key else ("cordon",):
            problem(operator.post(f"nodes/east/gpu-1/{verb}", {"reason": "x"}, **key), 409)
    entries = Entry.objects.filter(verb="request.refused").order_by("pk")
    assert [(one.node, one.data["requested"]) for one in entries] == [("gpu-1", ["cordon"]), ("gpu-1", ["drain"])]
    assert code_of(entries[1].data["because"]) == "rescue_in_the_way"
    assert not Answered.objects.exists()


def test_old_keys_are_forgotten(node: Node, operator: Api) -> None:
    operator.post("pause", {"reason": "x"}, Idempotency_Key="old")
    Answered.objects.update(at=timezone.now() - timedelta(days=8))
    operator.post("resume", {"reason": "x"}, Idempotency_Key="new")
    assert list(Answered.objects.values_list("key", flat=True)) == ["new"]


@pytest.mark.parametrize("key", [" ", "x" * 201])
def test_a_key_has_a_length(key: str, operator: Api) -> None:
    assert fields(operator.post("pause", {"reason": "x"}, Idempotency_Key=key)) == {
        "Idempotency-Key": "Must have 1 to 200 characters."
    }


# --- steering a rescue


@pytest.fixture
def approver(now: datetime) -> Api:
    return person("pat", "approver", now)


def waiting(node: Node, now: datetime) -> Rescue:
    rescue = add_story(node, now)
    Approval.objects.all().delete()
    Rescue.objects.update(hold="approval", expires_at=timezone.now() + timedelta(hours=1), needs_human=True)
    return rescue


def test_an_approval_is_recorded_and_starts_the_rescue(node: Node, approver: Api, now: datetime) -> None:
    rescue = waiting(node, now)
    body = approver.post(f"rescues/{rescue.pk}/approve", {"reason": "looks right", "plan_hash": "abc"}).json()
    assert (body["state"], body["needs_human"]) == ("running", False)
    row = Approval.objects.get()
    assert (row.by, row.approved, row.reason, row.plan_hash) == ("user:pat", True, "looks right", "abc")
    late = problem(approver.post(f"rescues/{rescue.pk}/approve"), 409)
    assert (late["code"], late["params"]) == ("not_awaiting_approval", {"rescue": str(rescue.pk)})


def test_a_changed_plan_is_not_approved(node: Node, approver: Api, now: datetime) -> None:
    rescue = waiting(node, now)
    problem(approver.post(f"rescues/{rescue.pk}/approve", {"plan_hash": "other"}), 409)
    assert not Approval.objects.exists()


def test_a_rejection_ends_the_rescue(node: Node, approver: Api, now: datetime) -> None:
    rescue = waiting(node, now)
    assert approver.post(f"rescues/{rescue.pk}/reject", {"reason": "no"}).json()["state"] == "cancelled"
    assert Approval.objects.get().approved is False


def test_a_rescue_is_cancelled_once(node: Node, operator: Api, now: datetime) -> None:
    rescue = add_story(node, now)
    body = operator.post(f"rescues/{rescue.pk}/cancel", {"reason": "mistake"}).json()
    assert body["state"] == "cancelled"
    assert "mistake" in body["because"]
    problem(operator.post(f"rescues/{rescue.pk}/cancel"), 409)


@pytest.mark.parametrize(("verb", "state"), [("retry", "waiting"), ("skip", "skipped")])
def test_a_held_step_is_repeated_or_left_out(verb: str, state: str, node: Node, operator: Api, now: datetime) -> None:
    rescue = add_story(node, now)
    Step.objects.filter(name="drain").update(state="failed")
    another = problem(operator.post(f"rescues/{rescue.pk}/{verb}", {"reason": "go on", "step": 0}), 409)
    assert (another["code"], another["params"]["number"], another["params"]["step"]) == ("other_step", "2", "drain")
    problem(operator.post(f"rescues/{rescue.pk}/{verb}", {"reason": "go on", "step": -1}), 400)
    body = operator.post(f"rescues/{rescue.pk}/{verb}", {"reason": "go on", "step": 1}).json()
    assert [step["state"] for step in body["steps"]] == ["done", state]
    assert body["state"] == "running"


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_an_operator_does_not_approve(verb: str, node: Node, operator: Api, now: datetime) -> None:
    rescue = waiting(node, now)
    for one in (operator, caller("decision", now)):
        problem(one.post(f"rescues/{rescue.pk}/{verb}"), 403)
    rescue.refresh_from_db()
    assert rescue.state == "held"


@pytest.mark.parametrize("verb", ["cancel", "retry", "skip"])
def test_a_viewer_cannot_steer_a_rescue(verb: str, node: Node, viewer: Api, now: datetime) -> None:
    problem(viewer.post(f"rescues/{add_story(node, now).pk}/{verb}"), 403)


def test_a_rescue_of_another_cluster_is_not_found(node: Node, west: Cluster, now: datetime) -> None:
    rescue = add_story(node, now)
    problem(caller("operator", now, cluster=west).post(f"rescues/{rescue.pk}/cancel"), 404)
    problem(caller("operator", now).post(f"rescues/{rescue.pk}/explode"), 404)
    problem(caller("operator", now).post("rescues/9999/cancel"), 404)


# --- tokens


def test_an_admin_makes_lists_and_withdraws_tokens(east: Cluster, admin: Api) -> None:
    response = admin.post("tokens", {"kind": "viewer", "cluster": "east", "name": "wall"})
    assert response.status_code == 201
    made = response.json()
    assert (made["kind"], made["cluster"], made["name"], made["created_by"]) == ("viewer", "east", "wall", "user:ada")
    assert made["token"].startswith(made["prefix"])
    assert Api(made["token"]).get("clusters").status_code == 200

    listed = admin.get("tokens?kind=viewer&revoked=false").json()["results"]
    assert [row["id"] for row in listed] == [made["id"]]
    assert "token" not in listed[0]
    assert "token" not in admin.get(f"tokens/{made['id']}").json()

    assert admin.call("delete", f"tokens/{made['id']}").status_code == 204
    problem(Api(made["token"]).get("clusters"), 401)
    assert admin.ids("tokens?revoked=true") == [made["id"]]
    assert admin.ids("tokens?revoked=false") == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "robot"}, 400),
        ({}, 400),
        ({"kind": "agent"}, 422),
        ({"kind": "viewer", "node": "gpu-1"}, 422),
        ({"kind": "viewer", "expires_at": "2020-01-01T00:00:00Z"}, 422),
        ({"kind": "viewer", "cluster": "mars"}, 400),
    ],
)
def test_an_invalid_token_is_refused(body: dict[str, str], status: int, admin: Api) -> None:
    problem(admin.post("tokens", body), status)
    assert not ApiToken.objects.exists()


def test_tokens_are_for_admins_and_of_their_clusters(
    east: Cluster, west: Cluster, operator: Api, now: datetime
) -> None:
    for call in (operator.get("tokens"), operator.post("tokens", {"kind": "viewer"})):
        problem(call, 403)
    local = person("lou", "admin", now, cluster=east)
    made = local.post("tokens", {"kind": "agent", "cluster": "east", "node": "gpu-1"})
    assert made.status_code == 201
    assert local.ids("tokens") == [made.json()["id"]]
    problem(local.post("tokens", {"kind": "viewer"}), 403)
    other, _ = accounts.make_token("viewer", cluster=west, created_by="t", now=now)
    problem(local.call("delete", f"tokens/{other.pk}"), 404)
