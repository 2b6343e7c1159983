"""Tokens have an owner, who counts as the requester of what they do."""

from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from kcover import audit
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.codes import refused
from tests.portal.accounts.browsers import Browser, Clock, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


def fresh(token: ApiToken) -> ApiToken:
    return ApiToken.objects.select_related("owner", "cluster").get(pk=token.pk)


def test_the_maker_of_a_token_owns_it(clock: Clock) -> None:
    make_user("root", clock.now, "admin")
    browser = Browser()
    browser.sign_in("root")
    assert browser.client.post("/access/tokens/new/", {"kind": "operator", "name": "console"}).status_code == 200
    made = browser.client.post("/api/v1/tokens", {"kind": "operator", "name": "rest"}, content_type="application/json")
    assert made.json()["owner"] == "root"
    foreign = {"kind": "operator", "owner": "anna"}  # nobody acts in another person's name
    assert browser.client.post("/api/v1/tokens", foreign, content_type="application/json").status_code == 400
    assert {(token.name, token.owner.username) for token in ApiToken.objects.all() if token.owner} == {
        ("console", "root"),
        ("rest", "root"),
    }
    acts = [audit.from_entry(entry) for entry in Entry.objects.filter(verb="token.created")]
    assert [act.owner for act in acts if isinstance(act, audit.TokenCreated)] == ["root", "root"]


def test_the_owner_is_the_requester(now: datetime) -> None:
    anna = make_user("anna", now, "operator")
    _, hers = services.make_token("operator", owner=anna, created_by="user:anna", now=now)
    _, nobodys = services.make_token("operator", created_by="command:root", now=now)
    found = [services.find_token(secret, now=now) for secret in (hers, nobodys)]
    assert [queries.owner_of(token) for token in found if token] == [anna, None]
    assert queries.owner_of(anna) == anna


def test_an_enrolment_token_ends_with_the_right_to_create_it_and_agents_go_on(east: Cluster, now: datetime) -> None:
    anna = make_user("anna", now, "admin")
    enrolment, _ = services.make_token("agent", cluster=east, owner=anna, created_by="user:anna", now=now)
    bound, _ = services.make_token("agent", cluster=east, node="gpu-2", owner=anna, created_by="user:anna", now=now)
    later = now + timedelta(days=30)
    enrolled, secret = services.enrol(enrolment, "gpu-1", expires_at=later, now=now)
    services.bind(anna, "approver", actor="test", now=now)
    with refused(services.Refused, "token_owner_role"):
        services.enrol(enrolment, "gpu-3", expires_at=later, now=now)
    with refused(services.Refused, "token_owner_role"):
        services.rotate(enrolment, owner=anna, actor="user:anna", now=now)
    with refused(services.Refused, "token_owner_role"):
        owner = User.objects.get(username="anna")
        services.make_token("agent", cluster=east, owner=owner, created_by="command:root", now=now)
    assert services.find_token(secret, now=now) is not None
    assert all(queries.owner_may_issue(fresh(token)) for token in (bound, enrolled))
    services.bind(anna, "admin", cluster=east, actor="test", now=now)
    services.enrol(enrolment, "gpu-3", expires_at=later, now=now)
    assert ApiToken.objects.filter(node="gpu-3").exists()


def test_the_page_shows_tokens_that_lost_their_owners_right(east: Cluster, clock: Clock) -> None:
    make_user("root", clock.now, "admin")
    browser = Browser()
    browser.sign_in("root")
    anna = make_user("anna", clock.now, "admin")
    services.make_token("agent", cluster=east, owner=anna, created_by="user:anna", now=clock.now)
    services.make_token("viewer", owner=anna, created_by="user:anna", now=clock.now)
    services.bind(anna, "viewer", actor="test", now=clock.now)
    shown = browser.client.get("/access/").context["tokens"]
    assert {one["token"].kind: one["state"] for one in shown} == {"agent": "ownerless", "viewer": "live"}


def test_the_shell_names_an_owner(now: datetime) -> None:
    anna = make_user("anna", now, "operator")
    call_command("token", "create", "--kind", "operator", "--owner", "anna", stdout=StringIO())
    assert ApiToken.objects.get().owner == anna
    with pytest.raises(CommandError, match="unknown user bo"):
        call_command("token", "create", "--kind", "operator", "--owner", "bo", stdout=StringIO())
