"""An invited person chooses the password: by a link that is shown once, works once, and ends."""

import logging
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from kcover import audit
from kcover_portal.accounts import services
from kcover_portal.accounts.models import Invitation, TotpDevice, User
from kcover_portal.accounts.services import invitations
from kcover_portal.ledger.models import Entry
from tests.codes import refused
from tests.portal.accounts.browsers import Browser, Clock, make_user
from tests.portal.accounts.second_factors import enrol

pytestmark = pytest.mark.django_db
OWN = "a password of their own"


@pytest.fixture
def root(clock: Clock) -> Browser:
    make_user("root", clock.now, "admin")
    browser = Browser()
    browser.sign_in("root")
    return browser


def invite(root: Browser, name: str = "li", role: str = "operator") -> str:
    """The token of the link that the console shows."""
    response = root.client.post("/access/users/invite/", {"username": name, "role": role})
    link: str = response.context["link"]
    address, _, token = link.partition("#")
    assert address == "http://testserver/invitation/"
    return token


def send(token: str, password: str | None = None) -> Any:
    sent = {"token": token} if password is None else {"token": token, "new_password": password}
    return Browser().client.post("/invitation/", sent)


def test_an_invited_person_chooses_the_password_and_signs_in(root: Browser, clock: Clock) -> None:
    token = invite(root)
    page = send(token)
    assert page.context["person"].username == "li"
    assert "no-store" in page.headers["Cache-Control"]
    assert send(token, OWN).url == "/sign-in/"
    assert Browser().sign_in("li", OWN).url == "/"
    acts = [audit.from_entry(entry) for entry in Entry.objects.filter(verb__startswith="user.invit").order_by("pk")]
    assert acts == [
        audit.UserInvited(user="li", expires_at=clock.now + invitations.INVITATION_LIFETIME),
        audit.InvitationAccepted(user="li", address="192.0.2.1"),
    ]
    assert [entry.actor for entry in Entry.objects.filter(verb="role.given", subject="user li")] == ["user:root"]


def test_an_invited_account_cannot_sign_in_before_the_password_is_set(root: Browser, clock: Clock) -> None:
    invite(root)
    for password in ("", "!", OWN):
        assert Browser().sign_in("li", password).status_code == 200


def test_a_link_works_once(root: Browser, clock: Clock) -> None:
    token = invite(root)
    send(token, OWN)
    assert send(token).status_code == 410
    assert send(token, "another password 2").status_code == 410
    assert User.objects.get(username="li").check_password(OWN)


def test_a_link_ends_after_three_days(root: Browser, clock: Clock) -> None:
    token = invite(root)
    clock.advance(days=3)
    assert send(token, OWN).status_code == 410


def test_a_new_link_replaces_the_earlier_one(root: Browser, clock: Clock) -> None:
    token = invite(root)
    li = User.objects.get(username="li")
    response = root.client.post(f"/access/users/{li.pk}/invite/", {"reason": "mail was lost"})
    assert send(token).status_code == 410
    assert send(response.context["link"].partition("#")[2]).status_code == 200


def test_a_disabled_account_cannot_be_entered_by_a_link(root: Browser, clock: Clock) -> None:
    token = invite(root)
    services.disable(User.objects.get(username="li"), actor="user:root", now=clock.now)
    assert send(token, OWN).status_code == 410


@pytest.mark.parametrize("token", ["kci_nonsense", "x" * 5000, "\0", "kci_\0", "令牌"])
def test_an_invalid_invitation_is_refused(token: str, root: Browser) -> None:
    assert send(token, OWN).status_code in (200, 410)


def test_a_weak_password_is_refused_and_the_link_stays(root: Browser, clock: Clock) -> None:
    token = invite(root)
    assert send(token, "short").status_code == 422
    assert send(token, OWN).status_code == 302


def test_an_account_with_a_password_cannot_be_invited(root: Browser, clock: Clock) -> None:
    bo = make_user("bo", clock.now)
    with refused(services.Refused, "invitation_not_new"):
        invitations.invite(bo, actor="user:root", now=clock.now)
    assert root.client.post(f"/access/users/{bo.pk}/invite/", {"reason": "x"}).status_code == 422


def test_only_admins_invite(clock: Clock) -> None:
    make_user("oli", clock.now, "approver")
    browser = Browser()
    browser.sign_in("oli")
    assert browser.client.post("/access/users/invite/", {"username": "li", "role": "admin"}).status_code == 403


def test_the_token_is_in_no_row_and_no_log(root: Browser, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        token = invite(root)
        send(token, OWN)
    kept = str([*Invitation.objects.values(), *Entry.objects.values()])
    assert token not in kept + caplog.text
    assert OWN not in kept + caplog.text


def test_two_answers_at_the_same_time_are_one(root: Browser, clock: Clock) -> None:
    token = invite(root)
    Invitation.objects.update(ended_at=clock.now + timedelta(seconds=1))  # another process was first
    with refused(services.Refused, "invitation_invalid"):
        invitations.accept(token, OWN, address="", now=clock.now)


# --- the shell


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("user", *arguments, stdout=out)
    return out.getvalue()


def test_the_shell_invites_and_invites_again(clock: Clock, settings: Any) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example.com"
    printed = command("invite", "li", "--role", "viewer")
    assert "https://portal.example.com/invitation/#kci_" in printed
    again = command("invite", "li")
    assert send(printed.partition("#")[2].strip()).status_code == 410
    assert send(again.partition("#")[2].strip()).status_code == 200
    with pytest.raises(CommandError, match="--role"):
        command("invite", "new")


def test_the_shell_resets_second_factors(clock: Clock) -> None:
    li = make_user("li", clock.now)
    enrol(li, clock.now)
    command("reset-factors", "li", "--reason", "lost phone")
    assert not TotpDevice.objects.exists()
    assert audit.from_entry(Entry.objects.get(verb="factor.reset")).own_words == "lost phone"
