"""Single sign-on and the second factors of the portal."""

from dataclasses import replace
from typing import Any

import pytest

from kcover import audit
from kcover_portal.accounts.models import Session, User
from kcover_portal.ledger.models import Entry
from tests.portal.accounts import second_factors
from tests.portal.accounts.browsers import Clock, make_user
from tests.portal.accounts.oidc import hostile
from tests.portal.accounts.oidc.conftest import SignOn

pytestmark = pytest.mark.django_db


def give(person: SignOn, code: str) -> Any:
    return person.client.post("/sign-in/factor/", {"factor_code": code})


def signed_in() -> list[Any]:
    return [audit.from_entry(entry) for entry in Entry.objects.filter(verb="user.signed_in").order_by("pk")]


def test_a_person_with_an_app_gives_a_code_after_the_provider(
    clock: Clock, provider: hostile.Provider, person: SignOn
) -> None:
    provider.claims = {"sid": "s1"}
    person.sign_in()
    app = second_factors.enrol(User.objects.get(), clock.now)
    again = SignOn(provider)
    response = again.sign_in("/account/")
    assert response.headers["Location"] == "/sign-in/factor/"
    assert again.opens() == 302, "not signed in yet"
    assert give(again, app.code(clock.now)).headers["Location"] == "/account/"
    assert signed_in()[-1] == audit.SignedIn(user="anna", address="192.0.2.7", factor="totp", issuer=provider.issuer)
    session = Session.objects.get(session_key=again.client.session.stored_key)
    assert session.identity is not None
    assert (session.identity.subject, session.provider_session) == ("person-1", "s1")


def test_a_person_who_needs_a_factor_adds_it_after_the_provider(person: SignOn, settings: Any) -> None:
    settings.KCOVER_SECOND_FACTOR = "all"
    assert person.sign_in().headers["Location"] == "/sign-in/enrol/"
    assert person.opens() == 302


def test_an_abandoned_single_sign_on_leaves_nothing_in_a_password_session(
    clock: Clock, provider: hostile.Provider, person: SignOn
) -> None:
    person.sign_in()
    second_factors.enrol(User.objects.get(), clock.now)
    shared = SignOn(provider)
    shared.sign_in()
    make_user("bo", clock.now)
    shared.client.post("/sign-in/", {"username": "bo", "password": "correct horse battery"})
    session = Session.objects.get(session_key=shared.client.session.stored_key)
    assert (session.user, session.identity, session.provider_session) == (User.objects.get(username="bo"), None, "")
    assert shared.client.post("/sign-out/").headers["Location"] == "/sign-in/"


def test_without_passwords_the_page_offers_no_passkey(
    provider: hostile.Provider, person: SignOn, settings: Any
) -> None:
    assert b"data-passkey" in person.client.get("/sign-in/").content
    settings.KCOVER_OIDC = replace(provider.client, passwords="nobody")
    page = person.client.get("/sign-in/").content
    assert b"data-passkey" not in page
    assert b'name="password"' not in page
