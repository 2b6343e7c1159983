"""Every endpoint and every method, derived from the URLs: a decision token can act only through decisions."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver

from kcover_portal.accounts import services as accounts
from kcover_portal.api.agent import app
from kcover_portal.checks.models import CheckRun
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Rescue
from tests.portal.api.conftest import Api, add_story, problem
from tests.portal.api.door import Door
from tests.share import in_share

pytestmark = pytest.mark.django_db

SAFE = ("get", "head", "options")
SHARES = 2  # a run tries half of the doors, each with each method
METHODS = (*SAFE, "post", "put", "patch", "delete", "trace")
# Plans of the decision system itself; and a pause, which is always safe.
DECISIONS = {
    ("api:rescue-actions", "post"),
    ("api:node-act", "post"),
    ("api:rescue-act", "post"),
    ("api:pause", "post"),
}
SIGNED = {
    "api:repair-vendor-events",
    "api:repair-jira-events",
    "api:repair-mail-messages",
}  # only a signature counts; a wrong one is recorded (test_vendor_events.py)
OPEN = {"console:sign-in", "console:approve", "console:invitation"}  # pages for everybody; they answer 200 with a form
VALUES = {"cluster": "east", "name": "east", "verb": "reboot", "guard": "storm", "kind": "slack", "shape": "csv"}
WRITES = re.compile(r"^\s*(INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)
# The token's last use, and the place that the list of jobs takes while it reads the clusters.
BOOKKEEPING = re.compile(r'^UPDATE "accounts_apitoken" SET "last_used_at"|^[A-Z ]+"runtime_lease"')


def doors() -> Iterator[tuple[str, str]]:
    """The name and an address of every URL pattern of the portal."""
    yield from _walk(get_resolver().url_patterns, "", "/")


def _walk(patterns: list[Any], space: str, prefix: str) -> Iterator[tuple[str, str]]:
    for one in patterns:
        route = str(one.pattern)
        if isinstance(one, URLResolver):
            yield from _walk(one.url_patterns, f"{one.namespace}:" if one.namespace else space, prefix + route)
        elif isinstance(one, URLPattern):
            path = "unknown" if route.startswith("^") else re.sub(r"<(?:\w+:)?(\w+)>", _value, route)
            yield f"{space}{one.name}", prefix + path


def _value(parameter: re.Match[str]) -> str:
    return VALUES.get(parameter[1], "1")


@pytest.fixture
def story(east: Cluster, node: Node, now: datetime) -> None:
    add_story(node, now)
    CheckRun.objects.create(cluster=east, checks=["dcgm"], requested_by="user:ann", requested_at=now)


def test_every_url_is_walked() -> None:
    found = dict(doors())
    assert len(found) > 130
    assert {"api:status", "api:check-run-stop", "console:approve", "api:nowhere"} <= set(found)


@pytest.mark.parametrize("method", METHODS)
def test_inv_11_a_decision_token_acts_by_no_other_door(story: None, east: Cluster, now: datetime, method: str) -> None:
    _, secret = accounts.make_token("decision", cluster=None, created_by="test", now=now)
    client = Client(headers={"Authorization": f"Bearer {secret}"}, raise_request_exception=False)
    before = Rescue.objects.count()
    acted, let_in = [], []
    for number, (name, path) in enumerate(doors()):
        if (name, method) in DECISIONS or not in_share(number, shares=SHARES):
            continue
        content: dict[str, Any] = {} if method in ("trace", *SAFE) else {"data": {}, "content_type": "application/json"}
        query = "?cluster=east&check=dcgm&r=4&wait=0" if name == "api:status" else ""
        with CaptureQueriesContext(connection) as asked:
            response = getattr(client, method)(path + query, **content)
        written = [one["sql"] for one in asked.captured_queries if WRITES.match(one["sql"])]
        acted += [(name, sql) for sql in written if not BOOKKEEPING.match(sql) and name not in SIGNED]
        status = 200 if name == "operate:readyz" else response.status_code  # 503: no process beside this one runs
        if status == 500 or (method not in SAFE and status < 300 and name not in OPEN | {"operate:readyz"}):
            let_in.append((name, response.status_code))
    assert (acted, let_in) == ([], [])
    assert Rescue.objects.count() == before


def test_a_decision_token_begins_and_stops_no_checks(story: None, east: Cluster, now: datetime) -> None:
    api = Api(accounts.make_token("decision", cluster=east, created_by="test", now=now)[1])
    for _ in range(2):
        assert problem(api.get("status?check=dcgm,gpumem&r=4&wait=0"), 403)["code"] == "decision_system_token"
    run = CheckRun.objects.get()
    assert problem(api.post(f"check-runs/{run.pk}/stop", {"reason": "x"}), 403)["code"] == "decision_system_token"


@pytest.mark.parametrize("path", sorted(app.METHODS))
@pytest.mark.django_db(transaction=True)
def test_a_decision_token_opens_no_agents_door(path: str, now: datetime) -> None:
    _, secret = accounts.make_token("decision", cluster=None, created_by="test", now=now)
    answer = Door(secret).call(app.METHODS[path], path, b"{}")
    assert answer.status in (401, 403)
