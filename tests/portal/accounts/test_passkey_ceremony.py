"""Attacks on the ceremony of passkeys: each answer counts once, for its session, person, purpose and site."""

from typing import Any

import pytest

from kcover_portal.accounts.models import Passkey, User
from tests.portal.accounts.authenticator import Authenticator
from tests.portal.accounts.browsers import Browser, Clock, make_user
from tests.portal.accounts.second_factors import is_in

pytestmark = pytest.mark.django_db
WHY = {"reason": "tuned"}


@pytest.fixture
def key(root: User, clock: Clock) -> Authenticator:
    """The passkey of ``root``."""
    made = Authenticator()
    browser = Browser()
    browser.sign_in("root")
    response = browser.client.post("/account/second-factor/", made.register(ask(browser, "register")))
    assert response.status_code == 200, "recovery codes are shown"
    return made


@pytest.fixture
def root(clock: Clock) -> User:
    return make_user("root", clock.now, "admin")


def ask(browser: Browser, purpose: str) -> dict[str, Any]:
    response = browser.client.get(f"/passkeys/{purpose}/")
    assert response.status_code == 200
    return response.json()


def at_second_step(address: str = "192.0.2.1") -> Browser:
    browser = Browser(address)
    assert browser.sign_in("root").status_code == 302
    return browser


def signed_in(key: Authenticator) -> Browser:
    browser = at_second_step()
    assert browser.client.post("/sign-in/factor/", key.sign(ask(browser, "confirm"))).status_code == 302
    return browser


def give(browser: Browser, answer: dict[str, str]) -> int:
    return browser.client.post("/sign-in/factor/", answer).status_code


def alone(answer: dict[str, str]) -> Browser:
    browser = Browser()
    browser.client.post("/sign-in/passkey/", answer)
    return browser


def test_a_passkey_is_a_second_factor_and_signs_in_alone(key: Authenticator) -> None:
    assert is_in(signed_in(key))
    assert is_in(alone(key.sign(ask(Browser(), "sign-in"))))


def test_an_answer_counts_once(key: Authenticator) -> None:
    first, second = at_second_step(), ask(Browser(), "sign-in")
    answer = key.sign(ask(first, "confirm"))
    assert [give(first, answer), give(first, answer)] == [302, 302]
    assert not is_in(alone(answer))
    answer = key.sign(second)
    assert is_in(alone(answer))
    assert not is_in(alone(answer))


def test_an_answer_is_worth_nothing_in_another_session_of_the_person(key: Authenticator, clock: Clock) -> None:
    """Somebody with a stolen session, or the password, who got hold of an answer that was never sent."""
    victim, thief = at_second_step(), at_second_step("203.0.113.7")
    answer = key.sign(ask(victim, "confirm"))
    assert give(thief, answer) == 422
    stolen = signed_in(key)
    clock.advance(minutes=11)
    stolen.client.post("/pause/", WHY)
    waiting = key.sign(ask(at_second_step(), "confirm"))
    assert stolen.client.post("/resume/", {**WHY, **waiting}).status_code == 422
    assert stolen.client.post("/resume/", {**WHY, **key.sign(ask(stolen, "confirm"))}).status_code == 302


def test_an_answer_is_worth_nothing_for_another_purpose(key: Authenticator) -> None:
    browser = at_second_step()
    assert give(browser, key.sign(ask(browser, "sign-in"))) == 422
    assert give(browser, key.sign(ask(browser, "register"))) == 422
    assert not is_in(alone(key.sign(ask(browser, "confirm"))))


@pytest.mark.parametrize(
    "other",
    [
        {"origin": "https://testserver"},
        {"origin": "http://testserver.evil.example"},
        {"origin": "http://testserver:8443"},
        {"rp_id": "evil.example"},
        {"credential": b"credential-2"},
        {"key": Authenticator().key},
    ],
    ids=lambda other: next(iter(other)),
)
def test_an_answer_for_another_site_or_of_another_key(other: dict[str, Any], key: Authenticator) -> None:
    browser = at_second_step()
    assert give(browser, key.but(**other).sign(ask(browser, "confirm"))) == 422
    assert not is_in(alone(key.but(**other).sign(ask(Browser(), "sign-in"))))


def test_the_passkey_of_another_person(key: Authenticator, clock: Clock) -> None:
    make_user("eve", clock.now)
    eve, own = Browser(), Authenticator(credential=b"credential-of-eve")
    eve.sign_in("eve")
    assert eve.client.post("/account/second-factor/", own.register(ask(eve, "register"))).status_code == 200
    browser = at_second_step()
    assert give(browser, own.sign(ask(browser, "confirm"))) == 422
    stolen = key.but(key=own.key)  # her key under the id of his passkey
    assert give(browser, stolen.sign(ask(browser, "confirm"))) == 422
    again = eve.client.post("/account/second-factor/", stolen.register(ask(eve, "register")))
    assert again.status_code == 422, "the id of another passkey"
    assert Passkey.objects.count() == 2


def test_a_challenge_ends_after_five_minutes(key: Authenticator, clock: Clock) -> None:
    browser = at_second_step()
    answer = key.sign(ask(browser, "confirm"))
    clock.advance(seconds=301)
    assert give(browser, answer) == 422


def test_a_cloned_authenticator_is_refused(key: Authenticator) -> None:
    """Its counter is behind that of the original, or equal to it."""
    signed_in(key.but(counter=7))
    browser = at_second_step()
    for counter in (0, 6, 7):
        assert give(browser, key.but(counter=counter).sign(ask(browser, "confirm"))) == 422
    assert give(browser, key.but(counter=8).sign(ask(browser, "confirm"))) == 302


def test_a_passkey_that_did_not_check_the_person_does_not_sign_in_alone(key: Authenticator) -> None:
    unsure = key.but(verifies=False)
    assert not is_in(alone(unsure.sign(ask(Browser(), "sign-in"))))
    assert is_in(signed_in(unsure)), "after the password it is enough"


def test_a_stolen_session_adds_no_passkey(key: Authenticator, clock: Clock) -> None:
    stolen = signed_in(key)
    clock.advance(minutes=11)
    own = Authenticator(credential=b"credential-of-thief")
    response = stolen.client.post("/account/second-factor/", own.register(ask(stolen, "register")))
    assert response.status_code == 422
    assert Passkey.objects.count() == 1


def test_a_passkey_is_added_only_in_the_session_that_requested_it(root: User) -> None:
    victim, thief = Browser(), Browser("203.0.113.7")
    victim.sign_in("root")
    thief.sign_in("root")
    planted = Authenticator().register(ask(thief, "register"))
    assert victim.client.post("/account/second-factor/", planted).status_code == 422
    assert not Passkey.objects.exists()
