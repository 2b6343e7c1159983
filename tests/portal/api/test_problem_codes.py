"""Problem documents carry stable codes: one for the whole, one for each field that is wrong."""

from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.fleet.models import Cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


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
    ],
)
def test_reading(path: str, status: int, code: str, now: datetime) -> None:
    document = problem(Client().get(path, headers=token(ApiToken.Kind.VIEWER, now)))
    assert (document["status"], document["code"]) == (status, code)


def test_who_is_asking(now: datetime, east: Cluster) -> None:
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
    assert send({"colour": "red", "reason": "x"}) == {"colour": "unknown"}
    paged = Client().get("/api/v1/nodes?page_size=0", headers=operator)
    assert codes(paged) == {"page_size": "out_of_range"}
    assert codes(Client().get("/api/v1/nodes?x=1", headers=operator)) == {"x": "unknown"}


def test_a_body_that_cannot_be_read(now: datetime) -> None:
    operator = token(ApiToken.Kind.OPERATOR, now)
    broken = Client().post("/api/v1/pause", "{", "application/json", headers=operator)
    assert problem(broken)["code"] == "parse_error"
    large = Client().post("/api/v1/pause", '"' + "x" * 2**21 + '"', "application/json", headers=operator)
    assert problem(large)["code"] == "too_large"
    other = Client().post("/api/v1/pause", "x", "text/plain", headers=operator)
    assert problem(other)["code"] == "unsupported_media_type"
