"""Problem documents have stable codes, one for the whole and one for each wrong field, and texts in two languages."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from kcover import sentences
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.fleet.models import Cluster, Node
from tests.portal.api.conftest import add_story

pytestmark = pytest.mark.django_db


def token(kind: str, now: datetime, cluster: Cluster | None = None) -> dict[str, str]:
    _row, secret = accounts.make_token(kind, cluster=cluster, created_by="test", now=now)
    return {"Authorization": f"Bearer {secret}"}


def problem(response: Any) -> dict[str, Any]:
    assert response.headers["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == response.status_code
    assert document["detail"]
    return document


def codes(response: Any) -> dict[str, str]:
    return {one["field"]: one["code"] for one in problem(response)["errors"]}


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/nothing", 404, "unknown_endpoint"),
        ("/api/v1/incidents/999", 404, "not_found"),
        ("/api/v1/nodes?x=1", 400, "invalid"),
        ("/api/v1/nodes?page_size=0", 400, "invalid"),
        ("/api/v1/nodes/?page_size=0", 400, "invalid"),
        ("/api/v1/", 404, "unknown_endpoint"),
    ],
)
def test_each_read_error_has_its_code(path: str, status: int, code: str, now: datetime) -> None:
    document = problem(Client().get(path, headers=token(ApiToken.Kind.VIEWER, now)))
    assert (document["status"], document["code"]) == (status, code)


def test_each_kind_of_missing_permission_has_its_code(now: datetime, east: Cluster) -> None:
    assert problem(Client().get("/api/v1/nodes"))["code"] == "not_authenticated"
    unknown = Client().get("/api/v1/nodes", headers={"Authorization": "Bearer kcv_unknown"})
    assert problem(unknown)["code"] == "token_invalid"
    agent = Client().get("/api/v1/nodes", headers=token(ApiToken.Kind.AGENT, now, east))
    assert problem(agent)["code"] == "agent_token"
    client = Client()
    client.force_login(User.objects.create_user("nobody", password="long-enough-1"))
    assert problem(client.get("/api/v1/nodes"))["code"] == "no_role"
    viewer = Client().post("/api/v1/pause", {"reason": "x"}, "application/json", headers=token("viewer", now))
    assert problem(viewer)["code"] == "role_required"


def test_a_field_has_a_code_of_its_own(now: datetime, east: Cluster) -> None:
    operator = token(ApiToken.Kind.OPERATOR, now)

    def send(body: dict[str, Any]) -> dict[str, str]:
        return codes(Client().post("/api/v1/pause", body, "application/json", headers=operator))

    assert send({"cluster": "mars", "reason": "x"}) == {"cluster": "unknown_cluster"}
    assert send({"colour": "red", "reason": "x"}) == {"colour": "unknown_field"}
    paged = Client().get("/api/v1/nodes?page_size=0", headers=operator)
    assert codes(paged) == {"page_size": "number_out_of_range"}
    assert codes(Client().get("/api/v1/nodes?x=1", headers=operator)) == {"x": "unknown_parameter"}


def test_a_body_that_cannot_be_read(now: datetime) -> None:
    operator = token(ApiToken.Kind.OPERATOR, now)
    broken = Client().post("/api/v1/pause", "{", "application/json", headers=operator)
    assert problem(broken)["code"] == "parse_error"
    large = Client().post("/api/v1/pause", '"' + "x" * 2**21 + '"', "application/json", headers=operator)
    assert problem(large)["code"] == "too_large"
    other = Client().post("/api/v1/pause", "x", "text/plain", headers=operator)
    assert problem(other)["code"] == "unsupported_media_type"


# --- the same codes in two languages

HAN = re.compile(r"[\u4e00-\u9fff]")
ENGLISH = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){3}")  # four words in a row
REPORTS = "preflight/reports?cluster=east"
CHINESE = {"Accept-Language": "zh-hans"}


def call(method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
    named = {**headers}
    kind = named.pop("Content-Type", "application/json")
    sent = {} if body is None else {"data": body, "content_type": kind}
    return getattr(Client(), method)(f"/api/v1/{path}", headers=named, **sent)


def in_both_languages(answer: Callable[[dict[str, str]], Any]) -> dict[str, Any]:
    """The English document; asserts that the Chinese one has the same codes and parameters and no English sentence."""
    english, chinese = problem(answer({})), problem(answer(CHINESE))
    texts = [chinese["detail"], *(error["reason"] for error in chinese.get("errors", ()))]
    assert [text for text in texts if not HAN.search(text) or ENGLISH.search(text)] == []
    assert not HAN.search(english["detail"])
    assert {key: chinese[key] for key in ("status", "code")} == {key: english[key] for key in ("status", "code")}
    assert [(e["field"], e["code"]) for e in chinese.get("errors", ())] == [
        (e["field"], e["code"]) for e in english.get("errors", ())
    ]
    return english


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "code"),
    [
        ("get", "nodes?x=1", None, "x", "unknown_parameter"),
        ("get", "nodes?stat=open", None, "stat", "unknown_parameter"),
        ("get", "clusters/east?x=1", None, "x", "unknown_parameter"),
        ("get", "nodes?node=%00", None, "node", "nul_character"),
        ("get", "nodes?page_size=0", None, "page_size", "number_out_of_range"),
        ("get", "nodes?cursor=nonsense", None, "cursor", "unknown_cursor"),
        ("get", "incidents?state=broken", None, "state", "invalid_choice"),
        ("get", "incidents?drill=perhaps", None, "drill", "invalid_choice"),
        ("get", "incidents?since=yesterday", None, "since", "invalid"),
        ("get", "audit?rescue=x", None, "rescue", "invalid"),
        ("post", "nodes/east/gpu-1/cordon?dry_run=maybe", {"reason": "x"}, "dry_run", "not_a_flag"),
        ("post", "pause", {"colour": "red", "reason": "x"}, "colour", "unknown_field"),
        ("post", "pause", {"cluster": "mars", "reason": "x"}, "cluster", "unknown_cluster"),
        ("post", "resume", {}, "reason", "required"),
        ("post", "resume", {"mode": "paused", "reason": "x"}, "mode", "resume_mode"),
        ("get", "policies/effective?kind=yid", None, "kind", "kind_unknown"),
        ("get", "policies/effective?code=x", None, "code", "code_not_numeric"),
        ("get", "policies/effective?kind=check", None, "code", "code_missing"),
        ("get", "policies/effective?code=62&node=gpu-none", None, "node", "unknown_node"),
        ("get", "policies/effective?code=62&label=pool", None, "label", "label_selector_invalid"),
        ("post", "policies/try", {"yaml": "x", "days": 1, "now": True}, "days", "exclusive"),
        ("patch", "clusters/east", {"storage_class": "No such"}, "storage_class", "storage_class_invalid"),
        ("get", "status", None, "cluster", "cluster_ambiguous"),
        ("get", "status?cluster=west", None, "cluster", "no_gpu_nodes"),
        ("get", "status?cluster=east&wait=9999", None, "wait", "number_out_of_range"),
        ("get", "status?cluster=east&host=", None, "host", "names_missing"),
        ("get", "status?cluster=east&check=nope", None, "check", "check_unsupported"),
        ("get", "status?cluster=east&check=iperf&workload=mesh", None, "workload", "workload_unknown"),
        ("get", "status?cluster=east&check=remapped&pclients=1", None, "pclients", "requires_check"),
        ("get", "status?cluster=east&check=pvc&storageclass=No", None, "storageclass", "storage_class_invalid"),
        ("post", REPORTS, {"namespace": "a", "report": []}, "report", "not_an_object"),
        (
            "post",
            REPORTS,
            {"namespace": "a", "report": {}},
            "report/workload",
            "workload_missing",
        ),
        (
            *("post", REPORTS),
            {"namespace": "a", "workload": "b", "report": {"workload": "c"}},
            *("workload", "other_workload"),
        ),
        (
            *("post", REPORTS),
            {"namespace": "a", "workload": "b", "report": {"workload_size": 3}},
            *("report/workload_size", "preflight_size_odd"),
        ),
    ],
)
def test_a_field_in_two_languages(
    method: str, path: str, body: Any, field: str, code: str, now: datetime, node: Node, west: Cluster
) -> None:
    operator = token(ApiToken.Kind.OPERATOR, now)
    document = in_both_languages(lambda language: call(method, path, body, operator | language))
    assert (document["status"], document["code"]) == (400, "invalid")
    (error,) = document["errors"]
    assert (error["field"], error["code"]) == (field, code)
    assert ("params" in error) == (code in sentences.SENTENCES)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("get", "nothing", None, {}, 404, "unknown_endpoint"),
        ("get", "incidents/999", None, {}, 404, "not_found"),
        ("get", "policies/none", None, {}, 404, "not_found"),
        ("post", "nodes/east/gpu-1/explode", {}, {}, 404, "unknown_action"),
        ("delete", "nodes", None, {}, 405, "method_not_allowed"),
        ("get", "nodes", None, {"Authorization": ""}, 401, "not_authenticated"),
        ("get", "nodes", None, {"Authorization": "Bearer kcv_unknown"}, 401, "token_invalid"),
        ("post", "channels", {}, {}, 403, "role_required"),
        ("get", "tokens", None, {}, 403, "role_required"),
        ("post", "rescues/{rescue}/approval-links", {}, {}, 403, "role_required"),
        ("post", "rescues/{rescue}/callback", {}, {}, 403, "signature_invalid"),
        ("post", "pause", '{"a": 1, "a": 2}', {}, 400, "parse_error"),
        ("post", "pause", "[" * 99 + "]" * 99, {}, 400, "parse_error"),
        ("post", "pause", '"' + "x" * 2**21 + '"', {}, 413, "too_large"),
        ("post", "pause", "x", {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
        ("post", "policies/validate", "", {"Content-Type": "application/yaml"}, 422, "body_empty"),
        ("post", "policies/validate", "kind: x", {"Content-Type": "application/yaml"}, 422, "policy_invalid"),
        ("post", "pause", {"reason": "y"}, {"Idempotency-Key": "k"}, 422, "idempotency_key_reused"),
    ],
)
def test_a_refusal_in_two_languages(
    *, method: str, path: str, body: Any, headers: dict[str, str], status: int, code: str, now: datetime, node: Node
) -> None:
    operator = token(ApiToken.Kind.OPERATOR, now)
    call("post", "pause", {"reason": "x"}, operator | {"Idempotency-Key": "k"})
    path = path.format(rescue=add_story(node, now).pk)
    document = in_both_languages(lambda language: call(method, path, body, operator | headers | language))
    assert (document["status"], document["code"]) == (status, code)


def test_the_problems_of_a_policy_in_two_languages(now: datetime) -> None:
    viewer = token(ApiToken.Kind.VIEWER, now) | {"Content-Type": "application/yaml"}
    document = in_both_languages(lambda language: call("post", "policies/validate", "kind: x", viewer | language))
    assert all(error["code"] in sentences.SENTENCES for error in document["errors"])


def test_a_refusal_of_a_service_in_two_languages(now: datetime, node: Node) -> None:
    operator, rescue = token(ApiToken.Kind.OPERATOR, now), add_story(node, now)
    document = in_both_languages(
        lambda language: call("post", "nodes/east/gpu-1/cordon", {"reason": "x"}, operator | language)
    )
    assert (document["code"], document["params"]) == ("rescue_in_the_way", {"rescue": str(rescue.pk)})
