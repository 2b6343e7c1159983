"""A disabled account: no sign-in, no session, no token, until it is enabled."""

from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from kcover import audit
from kcover_portal.accounts import services
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.codes import refused
from tests.portal.accounts.browsers import Browser, Clock, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(clock: Clock) -> Browser:
    make_user("root", clock.now, "admin")
    browser = Browser()
    browser.sign_in("root")
    return browser


@pytest.fixture
def anna(clock: Clock) -> User:
    return make_user("anna", clock.now, "operator")


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


def act(root: Browser, user: User, verb: str) -> int:
    return root.client.post(f"/access/users/{user.pk}/{verb}/", {"reason": "left the team"}).status_code


def read_status(secret: str) -> int:
    return Client().get("/api/v1/clusters", headers={"Authorization": f"Bearer {secret}"}).status_code


def test_an_admin_disables_an_account_and_enables_it(root: Browser, anna: User) -> None:
    browser = Browser("203.0.113.5")
    browser.sign_in("anna")
    assert act(root, anna, "disable") == 302
    assert browser.client.get("/nodes/").status_code == 302
    assert Browser("203.0.113.6").sign_in("anna").status_code == 200
    assert act(root, anna, "enable") == 302
    assert browser.client.get("/nodes/").status_code == 302  # the session has ended for good
    assert browser.sign_in("anna").status_code == 302
    entries = Entry.objects.filter(verb__in=("user.disabled", "user.enabled")).order_by("pk")
    assert [audit.from_entry(entry) for entry in entries] == [
        audit.UserDisabled(user="anna", reason="left the team"),
        audit.UserEnabled(user="anna", reason="left the team"),
    ]
    assert {entry.actor for entry in entries} == {"user:root"}


@pytest.mark.parametrize("kind", ["viewer", "operator", "decision"])
def test_the_tokens_of_a_disabled_account_are_refused(kind: str, root: Browser, anna: User, clock: Clock) -> None:
    annabel = make_user("annabel", clock.now, "operator")
    _, hers = services.make_token(kind, owner=anna, created_by="user:anna", now=clock.now)
    _, others = services.make_token(kind, owner=annabel, created_by="user:annabel", now=clock.now)
    _, shells = services.make_token(kind, created_by="command:anna", now=clock.now)
    act(root, anna, "disable")
    assert [read_status(secret) for secret in (hers, others, shells)] == [401, 200, 200]
    shown = root.client.get("/access/").context["tokens"]
    states = {one["token"].created_by: one["state"] for one in shown}
    assert states == {"user:anna": "suspended", "user:annabel": "live", "command:anna": "live"}
    act(root, anna, "enable")
    assert read_status(hers) == 200


def test_an_enrolment_token_of_a_disabled_account_is_refused_and_enrolled_nodes_continue(
    east: Cluster, now: datetime
) -> None:
    anna = make_user("anna", now, "admin")
    enrolment, _ = services.make_token("agent", cluster=east, owner=anna, created_by="user:anna", now=now)
    later = now + timedelta(days=30)
    _, enrolled = services.enrol(enrolment, "gpu-1", expires_at=later, now=now)
    _, bound = services.make_token("agent", cluster=east, node="gpu-2", owner=anna, created_by="user:anna", now=now)
    services.disable(anna, actor="test", now=now)
    with refused(services.Refused, "enrolment_token_invalid"):
        services.enrol(enrolment, "gpu-3", expires_at=later, now=now)
    for secret in (enrolled, bound):
        assert services.find_token(secret, now=now) is not None
    services.enable(anna, actor="test", now=now)
    services.enrol(enrolment, "gpu-3", expires_at=later, now=now)
    assert ApiToken.objects.filter(node="gpu-3").exists()


def test_an_admin_cannot_disable_the_own_account(root: Browser, anna: User) -> None:
    own = User.objects.get(username="root")
    assert act(root, own, "disable") == 422
    assert User.objects.get(username="root").is_active
    assert f"/access/users/{own.pk}/disable/" not in root.client.get("/access/").content.decode()


@pytest.mark.parametrize("verb", ["disable", "enable"])
def test_only_admins_disable_and_enable(verb: str, anna: User, clock: Clock) -> None:
    bo = make_user("bo", clock.now)
    services.disable(bo, actor="test", now=clock.now)
    browser = Browser()
    browser.sign_in("anna")
    assert act(browser, bo, verb) == 403
    assert not User.objects.get(username="bo").is_active


def test_an_old_form_does_not_do_the_opposite(root: Browser, anna: User) -> None:
    """Two admins open the same dialog, and both send it."""
    assert [act(root, anna, "disable"), act(root, anna, "disable")] == [302, 302]
    assert not User.objects.get(username="anna").is_active
    assert Entry.objects.filter(verb="user.disabled").count() == 1


def test_the_shell_disables_and_enables(anna: User) -> None:
    out = StringIO()
    call_command("user", "disable", "anna", "--reason", "left", stdout=out)
    assert not User.objects.get().is_active
    assert Entry.objects.get(verb="user.disabled").data == {"user": "anna", "reason": "left"}
    call_command("user", "enable", "anna", stdout=out)
    assert User.objects.get().is_active
    with pytest.raises(CommandError, match="unknown user bo"):
        call_command("user", "disable", "bo")
