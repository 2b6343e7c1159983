"""Tokens: never more than their owner, narrowed by verbs, networks and time, and rotated with an overlap."""

import ipaddress
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from kcover import audit
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.codes import refused
from tests.portal.accounts.browsers import Browser, Clock, make_user

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def root(clock: Clock) -> Browser:
    make_user("root", clock.now, "admin")
    browser = Browser()
    browser.sign_in("root")
    return browser


def post(browser: Browser, path: str, **body: object) -> Any:
    return browser.client.post(f"/api/v1/{path}", body, content_type="application/json")


def ask(secret: str, address: str = "192.0.2.1", path: str = "clusters", **headers: str) -> Any:
    return Client(REMOTE_ADDR=address).get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {secret}", **headers})


def fresh(token: ApiToken) -> ApiToken:
    return ApiToken.objects.select_related("owner").get(pk=token.pk)


def test_a_token_has_no_more_than_its_owner_today(east: Cluster, now: datetime) -> None:
    anna = make_user("anna", now, "operator")
    token, _ = services.make_token("operator", owner=anna, created_by="user:anna", now=now)
    assert queries.may(fresh(token), "repair", None)
    services.bind(anna, "viewer", actor="test", now=now)
    assert not queries.may(fresh(token), "repair", None)
    assert queries.may(fresh(token), "read", None)
    services.unbind(anna, actor="test", now=now)
    services.bind(anna, "operator", cluster=east, actor="test", now=now)
    assert queries.may(fresh(token), "repair", east)
    assert not queries.may(fresh(token), "read", None)


def test_the_scope_override_ends_with_the_owners_right(now: datetime) -> None:
    anna = make_user("anna", now, "approver")
    token, _ = services.make_token("operator", owner=anna, scopes=["override"], created_by="user:anna", now=now)
    assert queries.may_override(fresh(token), None)
    services.bind(anna, "operator", actor="test", now=now)
    assert not queries.may_override(fresh(token), None)


def test_verbs_of_a_token_narrow_its_kind(now: datetime) -> None:
    token, _ = services.make_token("operator", verbs=["read", "pause"], created_by="command:root", now=now)
    assert queries.verbs_in(token, None) == {"read", "pause"}
    with refused(services.Refused, "token_verbs_unused"):
        services.make_token("viewer", verbs=["pause"], created_by="command:root", now=now)
    with refused(services.Refused, "token_verbs_unused"):
        services.make_token("decision", verbs=["approve"], created_by="command:root", now=now)


def test_a_token_works_from_its_networks_only(now: datetime, settings: Any) -> None:
    networks = ["192.0.2.7/24", "2001:db8::/32"]
    made, secret = services.make_token("viewer", networks=networks, created_by="command:root", now=now)
    assert made.networks == ["192.0.2.0/24", "2001:db8::/32"]
    assert ask(secret, "192.0.2.200").status_code == 200
    assert ask(secret, "2001:db8::1").status_code == 200
    answer = ask(secret, "198.51.100.1")
    assert (answer.status_code, answer.json()["code"]) == (403, "token_wrong_address")
    assert ask(secret, "198.51.100.1", X_Forwarded_For="192.0.2.1").status_code == 403  # nobody vouches for it
    assert fresh(made).last_used_from == "192.0.2.200"


def test_behind_a_trusted_proxy_the_client_counts(now: datetime, settings: Any) -> None:
    settings.KCOVER_TRUSTED_PROXIES = (ipaddress.ip_network("198.51.100.0/24"),)
    _, secret = services.make_token("viewer", networks=["192.0.2.1"], created_by="command:root", now=now)
    forwarded = {"X-Forwarded-For": "192.0.2.1"}
    assert ask(secret, "198.51.100.1", **forwarded).status_code == 200
    assert ask(secret, "198.51.100.1", **{"X-Forwarded-For": "192.0.2.1, 203.0.113.5"}).status_code == 403


def test_invalid_networks_are_refused(east: Cluster, now: datetime) -> None:
    with refused(services.Refused, "token_network_invalid"):
        services.make_token("viewer", networks=["everywhere"], created_by="t", now=now)
    with refused(services.Refused, "token_networks_unused"):
        services.make_token("agent", cluster=east, networks=["192.0.2.1"], created_by="t", now=now)


def test_tokens_of_programs_expire_and_agent_tokens_do_not(root: Browser, east: Cluster, clock: Clock) -> None:
    expires = post(root, "tokens", kind="viewer").json()["expires_at"]
    assert datetime.fromisoformat(expires) == clock.now + services.DEFAULT_LIFETIME
    assert post(root, "tokens", kind="agent", cluster="east").json()["expires_at"] is None
    never = post(root, "tokens", kind="viewer", expires_at=None)
    assert (never.status_code, never.json()["errors"][0]["code"]) == (400, "token_needs_expiry")
    root.client.post("/access/tokens/new/", {"kind": "viewer", "name": "console", "networks": "192.0.2.0/24"})
    made = ApiToken.objects.get(name="console")
    assert (made.expires_at, made.networks) == (clock.now + services.DEFAULT_LIFETIME, ["192.0.2.0/24"])


def test_only_the_shell_makes_one_that_never_expires() -> None:
    for more in ((), ("--expires", "never")):
        call_command("token", "create", "--kind", "viewer", *more, stdout=StringIO())
    default, never = ApiToken.objects.order_by("pk")
    assert default.expires_at == default.created_at + services.DEFAULT_LIFETIME
    assert never.expires_at is None
    out = StringIO()
    call_command("token", "list", stdout=out)
    assert "no expiry" in out.getvalue()


def test_rotation_keeps_both_secrets_valid_for_the_overlap(root: Browser, clock: Clock) -> None:
    old = post(root, "tokens", kind="operator", verbs=["read"], networks=["192.0.2.0/24"], name="ci").json()
    clock.advance(days=80)
    root.sign_in("root")
    new = post(root, f"tokens/{old['id']}/rotate", overlap=3600).json()
    assert {new[key] == old[key] for key in ("kind", "verbs", "networks", "name", "owner", "scopes")} == {True}
    assert datetime.fromisoformat(new["expires_at"]) == clock.now + services.DEFAULT_LIFETIME
    assert [ask(secret).status_code for secret in (old["token"], new["token"])] == [200, 200]
    clock.advance(seconds=3600)
    assert [ask(secret).status_code for secret in (old["token"], new["token"])] == [401, 200]
    act = audit.from_entry(Entry.objects.get(verb="token.rotated"))
    assert isinstance(act, audit.TokenRotated)
    assert (act.token, act.successor) == (old["prefix"], new["prefix"])


def test_a_token_is_rotated_once(root: Browser, clock: Clock) -> None:
    old = post(root, "tokens", kind="viewer").json()
    assert post(root, f"tokens/{old['id']}/rotate").status_code == 201
    again = post(root, f"tokens/{old['id']}/rotate")
    assert (again.status_code, again.json()["code"]) == (422, "token_not_rotated")
    assert post(root, f"tokens/{old['id']}/rotate", overlap=8 * 86_400).status_code == 400


def test_rotation_does_not_lengthen_the_life_of_the_old_secret(root: Browser, clock: Clock) -> None:
    expires_at = clock.now + timedelta(hours=1)
    old = post(root, "tokens", kind="viewer", expires_at=expires_at.isoformat()).json()
    post(root, f"tokens/{old['id']}/rotate", overlap=86_400)
    assert ApiToken.objects.get(pk=old["id"]).expires_at == expires_at


def test_the_secret_of_another_persons_token_cannot_be_obtained(root: Browser, clock: Clock) -> None:
    """An admin who could rotate it would act in that person's name, and approve in their own."""
    anna = make_user("anna", clock.now, "operator")
    hers, _ = services.make_token("operator", owner=anna, created_by="user:anna", now=clock.now)
    refusal = post(root, f"tokens/{hers.pk}/rotate")
    assert (refusal.status_code, refusal.json()["code"]) == (422, "token_rotated_by_owner")
    own = Browser("192.0.2.9")
    own.sign_in("anna")
    assert post(own, f"tokens/{hers.pk}/rotate").status_code == 201
    nobodys, _ = services.make_token("operator", created_by="command:root", now=clock.now)
    assert post(own, f"tokens/{nobodys.pk}/rotate").status_code == 404
    made = post(root, f"tokens/{nobodys.pk}/rotate").json()
    assert made["owner"] == "root"  # who rotates a token of nobody answers for it


def test_a_token_cannot_rotate_a_token(clock: Clock) -> None:
    anna = make_user("anna", clock.now, "admin")
    hers, secret = services.make_token("operator", owner=anna, created_by="user:anna", now=clock.now)
    answer = Client().post(f"/api/v1/tokens/{hers.pk}/rotate", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 403


def test_the_shell_rotates(now: datetime) -> None:
    token, _ = services.make_token("viewer", created_by="command:root", now=now)
    out = StringIO()
    call_command("token", "rotate", token.prefix, "--overlap", "12h", stdout=out)
    assert services.find_token(out.getvalue().strip(), now=now) is not None
    assert User.objects.count() == 0
