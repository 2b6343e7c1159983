"""Refusals of the agents' endpoint have codes with parameters: English for the agent's log, Chinese for a reader."""

import gzip
import re
from datetime import datetime
from typing import Any

import pytest
from django.utils import translation

from kcover import reasons
from kcover_portal.accounts import services as accounts
from kcover_portal.api.agent import app
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization
from tests.portal.api.door import Answer, Door, encoded, report

pytestmark = pytest.mark.django_db(transaction=True)

HAN = re.compile(r"[\u4e00-\u9fff]")
ENGLISH = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){3}")  # four words in a row


@pytest.fixture
def east(now: datetime) -> Cluster:
    app.known_credentials.forget()
    return Cluster.objects.create(name="east", created_at=now)


def door(cluster: Cluster, now: datetime, *, kind: str = "agent", node: str = "") -> Door:
    return Door(accounts.make_token(kind, cluster=cluster, node=node, created_by="test", now=now)[1])


def chinese(answer: Answer) -> str:
    """The Chinese text of a refusal, from its code and parameters; asserts that its detail is the English one."""
    reason = reasons.from_json({key: answer.body[key] for key in ("code", "params")})
    assert answer.problem(answer.status).endswith(str(reason))
    with translation.override("zh-hans"):
        return localization.say(reason)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("GET", "nothing", b"", {}, 404, "agent_endpoint_unknown"),
        ("GET", "reports", b"", {}, 405, "method_not_allowed"),
        ("POST", "reports", b"", {}, 400, "body_missing"),
        ("POST", "reports", b" " * (1 << 21), {}, 413, "body_too_large"),
        ("POST", "reports", b" " * (1 << 21), {"Content_Length": ""}, 413, "body_too_large"),
        (
            "POST",
            "reports",
            gzip.compress(b" " * (1 << 21), mtime=0),
            {"Content_Encoding": "gzip"},
            413,
            "unpacked_too_large",
        ),
        ("POST", "reports", b"{}", {"Content_Encoding": "br"}, 415, "unsupported_encoding"),
        ("POST", "reports", gzip.compress(b"{}", mtime=0)[:-1], {"Content_Encoding": "gzip"}, 400, "gzip_truncated"),
        ("POST", "reports", gzip.compress(b"{}", mtime=0) + b"x", {"Content_Encoding": "gzip"}, 400, "gzip_with_tail"),
        ("POST", "reports", b"{}", {"Authorization": "Basic x"}, 401, "not_authenticated"),
        ("POST", "reports", b"{}", {"Authorization": "Bearer kca_unknown"}, 401, "token_invalid"),
        ("POST", "reports", b"{}", {"Authorization": "Bearer eyJ.x.y", "X_Kcover_Cluster": "east"}, 401, "jwt_invalid"),
        ("POST", "reports", b"{}", {"Authorization": "Bearer eyJ.x.y"}, 401, "cluster_header_missing"),
        ("POST", "reports", b"{}", {"X_Kcover_Cluster": "west"}, 403, "other_cluster"),
        ("POST", "reports", encoded(report(node="gpu-2")), {}, 403, "other_node"),
        ("POST", "enrol", b"", {}, 400, "body_missing"),
        ("POST", "enrol", b"[" * 100_000, {}, 400, "enrolment_too_deep"),
        ("POST", "enrol", b"[]", {}, 400, "enrolment_not_object"),
        ("POST", "enrol", b'{"node": "a", "node": "b"}', {}, 400, "enrolment_duplicate_key"),
        ("POST", "enrol", b"{}", {}, 400, "enrolment_node_missing"),
        ("POST", "enrol", b'{"node": "GPU 1"}', {}, 400, "enrolment_node_invalid"),
        ("POST", "enrol", b'{"node": "gpu-1", "key": "short"}', {}, 400, "enrolment_key_invalid"),
    ],
)
def test_a_refusal_has_a_code_and_chinese(
    *,
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, Any],
    status: int,
    code: str,
    east: Cluster,
    now: datetime,
) -> None:
    answer = door(east, now, node="gpu-1").call(method, path, body, **headers)
    assert (answer.status, answer.body["code"]) == (status, code)
    for error in answer.body.get("errors", ()):
        assert (error["code"], error["params"]) == (code, answer.body["params"])
    text = chinese(answer)
    assert HAN.search(text)
    assert not ENGLISH.search(text), text


def test_a_wait_out_of_range(east: Cluster, now: datetime) -> None:
    answer = door(east, now, node="gpu-1").commands("wait=61")
    assert (answer.status, answer.body["code"]) == (400, "out_of_range")
    assert HAN.search(chinese(answer))


@pytest.mark.parametrize(("kind", "code"), [("operator", "token_kind"), ("agent", "enrolment_token")])
def test_a_token_that_cannot_report(kind: str, code: str, east: Cluster, now: datetime) -> None:
    answer = door(east, now, kind=kind).report(report())
    assert (answer.status, answer.body["code"]) == (403, code)
    assert HAN.search(chinese(answer))


def test_a_wrong_envelope_has_a_code_of_its_own(east: Cluster, now: datetime) -> None:
    answer = door(east, now, node="gpu-1").report(report(version=2))
    (error,) = answer.body["errors"]
    assert (answer.status, error["field"], error["code"]) == (400, "version", "wire_version")
    assert error["params"] == {"value": "2", "version": 1}
    assert HAN.search(chinese(answer))
