"""Throttling of password guesses: the delays of the guesser, and of others."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth import hashers
from django.core import signing
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.accounts import services
from kcover_portal.accounts.models import AttemptCounter
from kcover_portal.accounts.services import sign_ins, throttle
from kcover_portal.console.forms.sign_in import DEVICE_COOKIE
from tests.codes import refused
from tests.portal.accounts.browsers import WRONG, Browser, Clock, make_user, wait_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The passwords that were hashed, for whatever account."""
    passwords: list[str] = []
    encode = hashers.MD5PasswordHasher.encode

    def counted(self: Any, password: str, salt: str) -> str:
        passwords.append(password)
        return str(encode(self, password, salt))

    monkeypatch.setattr(hashers.MD5PasswordHasher, "encode", counted)
    return passwords


def test_after_five_wrong_passwords_each_waits_longer(clock: Clock, hashed: list[str]) -> None:
    make_user("anna", clock.now)
    hashed.clear()
    browser = Browser()
    assert browser.fail("anna", 5) == [200] * 5
    waits = []
    for _ in range(12):
        waits.append(wait_of(browser.sign_in("anna", WRONG)))
        clock.advance(seconds=waits[-1])
        assert browser.fail("anna") == [200]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]
    assert len(hashed) == 17  # a refused attempt costs no hash


def test_the_right_password_is_refused_too_until_the_wait_is_over(clock: Clock) -> None:
    make_user("anna", clock.now)
    browser = Browser()
    browser.fail("anna", 6)
    clock.advance(seconds=wait_of(browser.sign_in("anna")))
    assert browser.sign_in("anna").status_code == 302


def test_the_right_password_clears_the_failures(clock: Clock) -> None:
    make_user("anna", clock.now)
    for _ in range(3):
        browser = Browser()
        assert browser.fail("anna", 4) == [200] * 4
        assert browser.sign_in("anna").status_code == 302


def test_failures_are_forgotten_after_an_hour(clock: Clock) -> None:
    browser = Browser()
    browser.fail("anna", 5)
    clock.advance(hours=1)
    assert browser.fail("anna", 6) == [200] * 5 + [429]


def test_an_account_that_does_not_exist_gets_the_same_answers_and_costs_the_same(
    clock: Clock, hashed: list[str]
) -> None:
    make_user("anna", clock.now)
    disabled = make_user("dora", clock.now)
    services.disable(disabled, actor="test", now=clock.now)
    seen = []
    for number, name in enumerate(("anna", "nobody", "dora")):
        browser, answers = Browser(f"192.0.2.{number + 1}"), []
        for _ in range(7):
            hashed.clear()
            with CaptureQueriesContext(connection) as captured:
                response = browser.sign_in(name, WRONG)
            page = response.content.decode().replace(name, "NAME")
            shown = page[page.index("<h1>") : page.index('class="door-foot"')]
            answers.append(
                (response.status_code, response.headers.get("Retry-After"), shown, len(hashed), len(captured))
            )
        seen.append(answers)
    assert seen[0] == seen[1] == seen[2]
    assert [answer[0] for answer in seen[0]] == [200] * 5 + [429] * 2


def test_guesses_at_the_same_time_see_each_other(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt is counted before its password is checked."""
    make_user("anna", clock.now)
    others: list[int] = []

    def while_hashing(*_args: object, **_named: object) -> None:
        monkeypatch.setattr(sign_ins, "authenticate", lambda *_args, **_named: None)
        others.extend(Browser().fail("anna", 9))

    monkeypatch.setattr(sign_ins, "authenticate", while_hashing)
    Browser().sign_in("anna", WRONG)
    assert others == [200] * 4 + [429] * 5


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread")
def test_threads_that_guess_at_the_same_time_are_counted_each(now: datetime) -> None:
    """And none of them ends in a deadlock, whether the password is right or wrong."""
    make_user("anna", now)

    def guess(number: int) -> str:
        attempt = throttle.of_sign_in("anna", address="192.0.2.1" if number % 2 else "192.0.2.2", device="")
        try:
            throttle.charge(attempt, now=now)
        except throttle.Throttled:
            return "refused"
        finally:
            connection.close()
        return "checked"

    with ThreadPoolExecutor(8) as pool:
        assert Counter(pool.map(guess, range(40))) == {"checked": 10, "refused": 30}
        assert len(list(pool.map(lambda _number: mixed(now), range(40)))) == 40


def mixed(now: datetime) -> None:
    attempt = throttle.of_sign_in("anna", address="192.0.2.3", device="")
    try:
        with contextlib.suppress(throttle.Throttled):
            throttle.charge(attempt, now=now + timedelta(hours=2))
        throttle.forgive(attempt, now=now + timedelta(hours=2))
        throttle.prune(now=now + timedelta(hours=2))
    finally:
        connection.close()


# --- others


def attack(name: str, now: datetime, *, addresses: int, first: int = 1) -> None:
    """One wrong password from each address."""
    for number in range(first, first + addresses):
        with contextlib.suppress(throttle.Throttled):
            throttle.charge(throttle.of_sign_in(name, address=f"198.51.100.{number}", device=""), now=now)


def test_an_attack_from_many_addresses_delays_another_address_once_and_not_long(clock: Clock) -> None:
    make_user("anna", clock.now)
    for _ in range(3):
        attack("anna", clock.now, addresses=30)
        clock.advance(seconds=10)
    home = Browser("203.0.113.7")
    assert wait_of(home.sign_in("anna")) == 30
    for _ in range(3):
        attack("anna", clock.now, addresses=30)
        attack("anna", clock.now, addresses=30, first=100)
        clock.advance(seconds=10)
    assert home.sign_in("anna").status_code == 302


def test_an_attack_from_many_addresses_is_slow_from_each(clock: Clock) -> None:
    make_user("anna", clock.now)
    attack("anna", clock.now, addresses=30)
    browser, waits = Browser("198.51.100.1"), []  # one wrong password so far: four more are free
    for _ in range(4):
        assert browser.fail("anna") == [200]
        waits.append(wait_of(browser.sign_in("anna", WRONG)))
        clock.advance(seconds=waits[-1])
    assert waits == [1, 2, 4, 8]


@pytest.mark.parametrize("name", ["anna", "nobody"])
def test_after_hundreds_of_guesses_only_known_browsers_get_through(name: str, clock: Clock) -> None:
    make_user("anna", clock.now)
    known = Browser("203.0.113.9")
    assert known.sign_in("anna").status_code == 302
    attack(name, clock.now, addresses=1)
    AttemptCounter.objects.filter(kind="account").update(failures=throttle.MAX_OF_ACCOUNT - 1)
    attack(name, clock.now, addresses=1)
    elsewhere = Browser("203.0.113.7")
    assert wait_of(elsewhere.sign_in(name)) == 3600
    with refused(throttle.Throttled, "account_flooded"):
        throttle.charge(throttle.of_sign_in(name, address="203.0.113.8", device=""), now=clock.now)
    known.client.post("/sign-out/")
    assert known.sign_in("anna").status_code == 302
    clock.advance(hours=1)
    assert elsewhere.sign_in("anna").status_code == 302


def test_the_owner_is_notified_of_the_guesses(clock: Clock) -> None:
    make_user("anna", clock.now)
    attack("anna", clock.now, addresses=19)
    home = Browser("203.0.113.7")
    home.sign_in("anna")
    assert not [*home.client.get("/overview/").context["messages"]]
    attack("anna", clock.now, addresses=1, first=50)
    elsewhere = Browser("203.0.113.8")
    clock.advance(seconds=wait_of(elsewhere.sign_in("anna")))
    elsewhere.sign_in("anna")
    told = [*elsewhere.client.get("/overview/").context["messages"]]
    assert [message.level_tag for message in told] == ["warning"]
    assert "20 wrong passwords" in str(told[0])


@pytest.mark.parametrize(("bits", "free"), [(56, 40), (48, 100)])
def test_networks_of_one_ipv6_customer_are_counted_together(bits: int, free: int, clock: Clock) -> None:
    """Each guess has a /64 of its own, and an account of its own."""

    def guess(number: int, network: int) -> int:
        address = f"2001:db8:1:{number * (0x100 if bits == 48 else 1):x}::1"
        return Browser(address).sign_in(f"{network}-{number}", WRONG).status_code

    assert [guess(number, 1) for number in range(free + 1)] == [200] * free + [429]
    assert Browser("2001:db8:2::1").sign_in("anna", WRONG).status_code == 200


def test_an_attack_does_not_delay_other_accounts(clock: Clock) -> None:
    for name in ("anna", "bo"):
        make_user(name, clock.now)
    attack("anna", clock.now, addresses=40)
    assert Browser("203.0.113.7").sign_in("bo").status_code == 302


def test_a_known_browser_is_not_delayed_by_an_attack(clock: Clock) -> None:
    """Even if the attacker sits behind the same address and never stops."""
    make_user("anna", clock.now)
    known = Browser()
    assert known.sign_in("anna").status_code == 302
    known.client.post("/sign-out/")
    Browser().fail("anna", 10)
    attack("anna", clock.now, addresses=30)
    assert wait_of(Browser().sign_in("anna")) > 0
    assert known.sign_in("anna").status_code == 302


def test_a_known_browser_has_its_own_limit(clock: Clock) -> None:
    make_user("anna", clock.now)
    known = Browser()
    known.sign_in("anna")
    known.client.post("/sign-out/")
    assert known.fail("anna", 7) == [200] * 5 + [429] * 2


def test_cookies_from_an_old_password_are_worthless(clock: Clock) -> None:
    """Each sign-in makes another cookie, and each cookie has a counter of its own."""
    anna = make_user("anna", clock.now)
    collected = [Browser() for _ in range(3)]
    assert [browser.sign_in("anna").status_code for browser in collected] == [302] * 3
    for browser in collected:
        browser.client.post("/sign-out/")
    services.set_password(anna, "another horse battery", actor="test", now=clock.now)
    assert [browser.fail("anna", 2) for browser in collected] == [[200, 200], [200, 200], [200, 429]]


@pytest.mark.parametrize(
    "cookie",
    [
        signing.dumps(["bo", "1", ""], salt=sign_ins.SALT),  # of another account
        signing.dumps(["anna", "1", ""], salt="another"),
        signing.dumps("anna", salt=sign_ins.SALT),
        "anna",
        "",
    ],
    ids=["another account", "another salt", "another shape", "unsigned", "empty"],
)
def test_a_cookie_of_another_account_or_hand_does_not_help(cookie: str, clock: Clock) -> None:
    make_user("anna", clock.now)
    browser = Browser()
    browser.client.cookies[DEVICE_COOKIE] = cookie
    Browser().fail("anna", 6)
    assert wait_of(browser.sign_in("anna")) > 0


def test_one_address_that_tries_many_accounts_is_throttled(clock: Clock) -> None:
    make_user("anna", clock.now)
    browser = Browser()
    answers = [browser.sign_in(f"user-{number}", WRONG).status_code for number in range(25)]
    assert answers == [200] * 20 + [429] * 5
    assert Browser("203.0.113.7").sign_in("anna").status_code == 302
    for _ in range(10):
        clock.advance(seconds=wait_of(browser.sign_in("user-x", WRONG)))
        assert browser.fail("user-y") == [200]
    assert wait_of(browser.sign_in("user-x", WRONG)) == 60


def test_addresses_of_one_ipv6_network_count_as_one(clock: Clock) -> None:
    answers = [Browser(f"2001:db8:1:2::{number:x}").sign_in("anna", WRONG).status_code for number in range(1, 8)]
    assert answers == [200] * 5 + [429] * 2
    assert Browser("2001:db8:1:3::1").sign_in("anna", WRONG).status_code == 200


# --- rows


def test_no_name_and_no_address_is_stored(clock: Clock) -> None:
    Browser().sign_in("my-secret-password", "x")
    stored = str(list(AttemptCounter.objects.values()))
    assert AttemptCounter.objects.count() == 3
    assert "my-secret" not in stored
    assert "192.0.2" not in stored


def test_a_blocked_address_makes_no_rows(clock: Clock) -> None:
    browser = Browser()
    for number in range(21):
        browser.sign_in(f"user-{number}", WRONG)
    rows = AttemptCounter.objects.count()
    for number in range(100, 140):
        assert browser.sign_in(f"user-{number}", WRONG).status_code == 429
    assert AttemptCounter.objects.count() == rows


def test_the_oldest_rows_go_when_there_are_too_many(now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MAX_ROWS", 30)
    for number in range(40):
        attempt = throttle.of_sign_in("anna", address=f"10.1.1.{number}", device=f"{number}")
        throttle.charge(attempt, now=now + timedelta(seconds=number))
    names = (throttle.of_sign_in("anna", address="", device=f"new {number}") for number in range(10_000))
    looks = next(attempt for attempt in names if attempt["device"].endswith("00"))
    throttle.charge(looks, now=now + timedelta(minutes=1))
    assert AttemptCounter.objects.count() == 30
    assert AttemptCounter.objects.filter(key__in=[attempt["device"], looks["device"]]).count() == 2


def test_forgotten_rows_are_deleted(now: datetime) -> None:
    throttle.charge(throttle.of_sign_in("anna", address="192.0.2.1", device=""), now=now)
    throttle.prune(now=now + timedelta(minutes=59))
    assert AttemptCounter.objects.count() == 3
    throttle.prune(now=now + timedelta(hours=1))
    assert AttemptCounter.objects.count() == 0
