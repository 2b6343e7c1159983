"""Step-up over REST: a session needs a fresh second factor for grave actions, a token does not."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import recovery_codes
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import STORM, Incident
from kcover_portal.notify.models import Channel, Route
from kcover_portal.notify.services import channels
from tests.portal.accounts.second_factors import App, enrol
from tests.portal.api.conftest import Api, problem

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: heal}
spec: {rules: [{priority: 10, mode: enforce, errorCode: ["62"], actions: [{name: cordon}]}]}
"""


@pytest.fixture
def root(db: None, now: datetime, monkeypatch: pytest.MonkeyPatch) -> tuple[Api, App]:
    """The session of an admin with an app."""
    monkeypatch.setattr(timezone, "now", lambda: now)
    user = accounts.make_user("root", password="long-enough-1", role="admin", created_by="test", now=now)
    client = Client()
    client.force_login(user)
    return Api(client=client), enrol(user, now)


Act = Callable[[Api], Any]
ACTS: dict[str, Act] = {
    "resume": lambda api: api.post("resume", {"reason": "x"}),
    "guards": lambda api: api.call("patch", "clusters/east/guards", {"cooldown": 60}),
    "mode": lambda api: api.call("patch", "clusters/east", {"mode": "enforce"}),
    "job image": lambda api: api.call("patch", "clusters/east", {"job_image": "evil"}),
    "override": lambda api: api.post("nodes/east/gpu-1/cordon", {"reason": "x", "override": ["budget"]}),
    "end an exclusion": lambda api: api.post("nodes/east/gpu-1/end_exclusion", {"reason": "x"}),
    "end many exclusions": lambda api: api.post(
        "nodes/end_exclusion", {"reason": "x", "cluster": "east", "nodes": ["gpu-1"]}
    ),
    "token": lambda api: api.post("tokens", {"kind": "operator"}),
    "role": lambda api: api.post("roles", {"name": "night", "verbs": ["read"]}),
    "profile": lambda api: api.call("put", "profiles/light", {"checks": [{"check": "pciebw"}]}),
    "policy": lambda api: api.post("policies?reason=x", text=POLICY),
    "disable a policy": lambda api: api.call("delete", "policies/heal?reason=x"),
    "channel": lambda api: api.post("channels", {"name": "ops", **CHANNEL}),
    "delete a channel": lambda api: api.call("delete", "channels/desk"),
    "route": lambda api: api.post("routes", {"channel": "desk", "kinds": ["rescue.failed"]}),
    "delete a route": lambda api: api.call("delete", f"routes/{Route.objects.get().pk}"),
    "route of a namespace": lambda api: api.post(
        "namespace-routes", {"channel": "desk", "cluster": "east", "namespace": "ml"}
    ),
    "audit sink": lambda api: api.post("audit-sinks", {"name": "siem", "kind": "syslog", "address": "tcp://siem:601"}),
    "source": lambda api: api.post("sources", {"name": "am", "kind": "alertmanager", "cluster": "east"}),
    "revoke an agent's token": lambda api: api.call("delete", f"tokens/{ApiToken.objects.get(kind='agent').pk}"),
    "close a storm": lambda api: api.post(f"incidents/{storm().pk}/close", {"reason": "x"}),
    "change a channel": lambda api: api.call("patch", "channels/desk", {"url": "https://chat.example.com/y"}),
}
CHANNEL = {"kind": "slack", "url": "https://chat.example.com/x"}


def storm() -> Incident:
    """An open one of the cluster."""
    at = timezone.now()
    given = {"cluster": Cluster.objects.get(), "kind": STORM, "code": "62", "state": "open"}
    return Incident.objects.get_or_create(**given, defaults={"opened_at": at, "last_at": at})[0]


def test_a_program_closes_a_storm_only_if_it_may_override(node: Node, now: datetime) -> None:
    """It ends a guard for all nodes of the storm."""
    for scopes, status in (([], 403), (["override"], 200)):
        _, secret = accounts.make_token("operator", scopes=scopes, created_by="test", now=now)
        assert Api(secret).post(f"incidents/{storm().pk}/close", {"reason": "x"}).status_code == status


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_a_session_must_confirm(act: Act, root: tuple[Api, App], node: Node, now: datetime) -> None:
    Cluster.objects.update(mode="shadow")
    api, app = root
    desk = channels.CHANNELS.make(
        Channel(name="desk", kind="slack"), {"url": "https://chat.example.com/z"}, actor="test", now=now
    )
    accounts.make_token("agent", cluster=node.cluster, created_by="test", now=now)
    channels.make_route(desk, kinds=["rescue.healed"], cluster=None, least="", actor="test", now=now)
    assert problem(act(api), 403)["code"] == "step_up_required"
    assert api.post("account/step-up", {"code": app.code(now)}).status_code == 204
    done = act(api)
    assert done.status_code != 403, done.content


def test_a_pause_and_a_stricter_mode_never_ask(root: tuple[Api, App], east: Cluster) -> None:
    api, _app = root
    assert api.call("patch", "clusters/east", {"mode": "shadow", "reason": "x"}).status_code == 200
    assert api.post("pause", {"reason": "x"}).status_code == 200


def test_a_token_is_not_asked_for_a_factor(root: tuple[Api, App], east: Cluster, now: datetime) -> None:
    _token, secret = accounts.make_token("operator", created_by="test", now=now)
    assert Api(secret).post("resume", {"reason": "x"}).status_code == 200
    body = problem(Api(secret).post("account/step-up", {"code": "000000"}), 403)
    assert body["code"] == "factor_of_person"


def test_a_wrong_code_is_refused_and_several_are_throttled(root: tuple[Api, App], now: datetime) -> None:
    api, app = root
    for number in range(5):
        assert problem(api.post("account/step-up", {"code": f"{number:06}"}), 422)["code"] == "factor_wrong"
    refused = api.post("account/step-up", {"code": app.code(now)})
    assert problem(refused, 429)["code"] == "attempts_throttled"
    assert refused.headers["Retry-After"] == "1"


@pytest.mark.parametrize("body", [{}, {"code": ""}, {"code": 7}, {"code": "x" * 41}, {"code": None}, {"other": "x"}])
def test_a_malformed_body_names_the_field(body: dict[str, Any], root: tuple[Api, App]) -> None:
    assert root[0].post("account/step-up", body).status_code in (400, 422)


def test_a_code_confirms_once(root: tuple[Api, App], now: datetime) -> None:
    api, app = root
    assert api.post("account/step-up", {"code": app.code(now)}).status_code == 204
    assert api.post("account/step-up", {"code": app.code(now)}).status_code == 422


def test_a_repeated_key_is_no_way_around(root: tuple[Api, App], east: Cluster) -> None:
    api, _app = root
    for _ in range(2):
        answer = api.post("resume", {"reason": "x"}, Idempotency_Key="k")
        assert problem(answer, 403)["code"] == "step_up_required"
    assert ApiToken.objects.count() == 0


def test_a_role_that_needs_a_factor_is_refused_without_one(
    db: None, now: datetime, east: Cluster, settings: Any
) -> None:
    settings.KCOVER_SECOND_FACTOR = "approvers"
    user = accounts.make_user("anna", password="long-enough-1", role="admin", created_by="test", now=now)
    client = Client()
    client.force_login(user)
    body = problem(Api(client=client).post("resume", {"reason": "x"}), 403)
    assert body["code"] == "second_factor_missing"
    codes = recovery_codes.make(user, actor="user:anna", now=now)
    assert problem(Api(client=client).post("account/step-up", {"code": codes[0]}), 422)["code"] == "factor_wrong"
