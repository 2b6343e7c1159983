"""Signing in with a second factor: app, recovery code; each counts once, guesses are throttled, all of it on record."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from kcover import audit
from kcover_portal.accounts import queries, services, tasks
from kcover_portal.accounts.models import AttemptCounter, RecoveryCode, Session, TotpDevice, User
from kcover_portal.accounts.services import recovery_codes, second_factors, totp
from kcover_portal.encryption import keyring
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.codes import refused
from tests.portal.accounts.browsers import PASSWORD, Browser, Clock, make_user, wait_of
from tests.portal.accounts.second_factors import App, enrol, give, is_in

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _encryption_key(tmp_path: Path, settings: Any) -> None:
    path = tmp_path / "encryption_key"
    path.write_text(keyring.new_key(), encoding="utf-8")
    settings.KCOVER_ENCRYPTION_KEY_FILE = str(path)


@pytest.fixture
def anna(clock: Clock) -> User:
    return make_user("anna", clock.now, "approver")


@pytest.fixture
def app(anna: User, clock: Clock) -> App:
    return enrol(anna, clock.now)


def recorded(verb: str) -> list[Any]:
    return [audit.from_entry(entry) for entry in Entry.objects.filter(verb=verb).order_by("pk")]


# --- the two steps


def test_a_password_alone_does_not_sign_in_an_account_with_an_app(app: App, clock: Clock) -> None:
    browser = Browser()
    response = browser.sign_in("anna")
    assert (response.status_code, response.url) == (302, "/sign-in/factor/")
    assert not is_in(browser)
    assert browser.client.get("/api/v1/clusters").status_code in (401, 403)
    assert recorded("user.signed_in") == []
    assert Session.objects.filter(user__isnull=False).count() == 0


@pytest.mark.parametrize("wanted", ["nowhere", "console:access", "?a", "#", "..", "//evil.example", "/\\evil.example"])
def test_a_redirect_leads_only_to_pages_of_the_portal(app: App, clock: Clock, wanted: str) -> None:
    make_user("bo", clock.now)
    one, two = Browser(), Browser("192.0.2.9")
    signed_in = one.client.post("/sign-in/", {"username": "bo", "password": PASSWORD, "next": wanted})
    assert (signed_in.status_code, signed_in.url) == (302, "/")
    assert one.client.post("/preferences/", {"next": wanted, "language": "en"}).url == "/"
    assert one.client.post("/account/confirm/", {"next": wanted}).url == "/account/"
    two.client.post("/sign-in/", {"username": "anna", "password": PASSWORD, "next": wanted})
    assert give(two, app.code(clock.now)).url == "/"


def test_password_and_code_sign_in_and_lead_on(app: App, clock: Clock) -> None:
    browser = Browser("192.0.2.9")
    browser.client.post("/sign-in/?next=/nodes/", {"username": "anna", "password": PASSWORD, "next": "/nodes/"})
    code = app.code(clock.now)
    response = give(browser, f"{code[:3]} {code[3:]}")
    assert (response.status_code, response.url) == (302, "/nodes/")
    assert is_in(browser)
    assert recorded("user.signed_in") == [audit.SignedIn(user="anna", address="192.0.2.9", factor="totp")]
    assert "kcover_device" in browser.client.cookies


def test_a_code_without_the_password_does_not_sign_in(app: App, clock: Clock) -> None:
    browser = Browser()
    response = give(browser, app.code(clock.now))
    assert (response.status_code, response.url) == (302, "/sign-in/")
    assert not is_in(browser)


@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_a_clock_that_is_half_a_minute_off_is_accepted(steps: int, app: App, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("anna")
    assert give(browser, app.code(clock.now, steps)).status_code == 302


@pytest.mark.parametrize("steps", [-2, 2])
def test_an_older_or_later_code_is_refused(steps: int, app: App, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("anna")
    assert give(browser, app.code(clock.now, steps)).status_code == 422
    assert not is_in(browser)


def test_a_code_counts_once(app: App, clock: Clock) -> None:
    first, second = Browser(), Browser()
    first.sign_in("anna")
    second.sign_in("anna")
    code = app.code(clock.now)
    assert give(first, code).status_code == 302
    assert give(second, code).status_code == 422
    assert give(second, app.code(clock.now, -1)).status_code == 422, "nor does an earlier one count afterwards"
    assert not is_in(second)
    clock.advance(seconds=30)
    assert give(second, app.code(clock.now)).status_code == 302


def test_the_code_of_the_setup_counts_as_used(anna: User, clock: Clock) -> None:
    setup = totp.new_setup(anna, now=clock.now)
    app = App(totp.seed_of(setup, anna, now=clock.now))
    second_factors.enrol_totp(anna, setup, app.code(clock.now), now=clock.now)
    browser = Browser()
    browser.sign_in("anna")
    assert give(browser, app.code(clock.now)).status_code == 422


def test_the_second_step_must_follow_within_ten_minutes(app: App, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("anna")
    clock.advance(minutes=10, seconds=1)
    response = give(browser, app.code(clock.now))
    assert (response.status_code, response.url) == (302, "/sign-in/")
    assert not is_in(browser)


def test_a_new_password_or_a_disabling_ends_the_second_step(app: App, anna: User, clock: Clock) -> None:
    changed, disabled = Browser(), Browser()
    changed.sign_in("anna")
    services.set_password(anna, "another long password", actor="user:root", now=clock.now)
    assert give(changed, app.code(clock.now)).url == "/sign-in/"
    disabled.sign_in("anna", "another long password")
    services.disable(anna, actor="user:root", now=clock.now)
    assert give(disabled, app.code(clock.now)).url == "/sign-in/"
    assert not is_in(changed)
    assert not is_in(disabled)


def test_a_planted_session_key_is_worthless(app: App, clock: Clock) -> None:
    attacker = Browser()
    attacker.sign_in("anna")
    planted = attacker.client.cookies["sessionid"].value
    victim = Browser()
    victim.client.cookies["sessionid"] = planted
    victim.sign_in("anna")
    between = victim.client.cookies["sessionid"].value
    assert between != planted
    assert give(victim, app.code(clock.now)).status_code == 302
    assert victim.client.cookies["sessionid"].value not in (planted, between)
    attacker.client.cookies["sessionid"] = between
    assert not is_in(attacker)
    assert is_in(victim)


def test_an_empty_code_is_no_attempt(app: App, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("anna")
    for sent in ({}, {"factor_code": ""}, {"factor_code": "x" * 41}, {"factor_code": "12\0"}):
        assert browser.client.post("/sign-in/factor/", sent).status_code in (200, 422)
    assert recorded("factor.failed") == []


@pytest.mark.parametrize(
    "sent",
    [
        {"factor_credential": "{}", "factor_state": "x"},
        {"factor_credential": "[" * 5000, "factor_state": ""},
        {"factor_code": "１２３４５６"},
        {"factor_code": "abcd-efgh-ijkl-mnop"},
    ],
)
def test_an_invalid_factor_is_refused(sent: dict[str, str], app: App, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("anna")
    assert browser.client.post("/sign-in/factor/", sent).status_code == 422
    assert not is_in(browser)


# --- guessing


def test_guesses_are_throttled_and_on_record(app: App, clock: Clock) -> None:
    browser = Browser("192.0.2.9")
    browser.sign_in("anna")
    assert [give(browser, f"{number:06}").status_code for number in range(5)] == [422] * 5
    assert wait_of(give(browser, app.code(clock.now))) == 1
    assert not is_in(browser)
    clock.advance(minutes=1)
    tasks.record_failed_attempts()
    acts = recorded("factor.failed")
    assert sum(act.count for act in acts) == 6
    assert sum(act.refused for act in acts) == 1
    assert {(act.user, act.address) for act in acts} == {("anna", "192.0.2.9")}
    assert give(browser, app.code(clock.now)).status_code == 302


def test_guesses_from_many_addresses_share_one_counter(app: App, clock: Clock) -> None:
    answers = []
    for number in range(8):
        browser = Browser(f"203.0.113.{number}")
        browser.sign_in("anna")
        answers.append(give(browser, f"{number:06}").status_code)
    assert answers == [422] * 5 + [429] * 3


def test_a_browser_that_signed_in_before_does_not_wait_for_them(app: App, clock: Clock) -> None:
    known = Browser()
    known.sign_in("anna")
    give(known, app.code(clock.now))
    known.client.post("/sign-out/")
    clock.advance(minutes=2)
    for number in range(7):
        stranger = Browser(f"203.0.113.{number}")
        stranger.sign_in("anna")
        give(stranger, f"{number:06}")
    known.sign_in("anna")
    assert give(known, app.code(clock.now)).status_code == 302


def test_browsers_from_before_the_factor_share_the_counter_of_strangers(anna: User, clock: Clock) -> None:
    """Somebody with the password could collect cookies before the person adds a factor."""
    collected = [Browser() for _ in range(4)]
    for browser in collected:
        browser.sign_in("anna")
        browser.client.post("/sign-out/")
    enrol(anna, clock.now)
    for browser in collected:
        browser.sign_in("anna")
    answers = [give(browser, "000000").status_code for browser in collected for _ in range(2)]
    assert answers == [422] * 5 + [429] * 3


def test_a_password_alone_makes_no_browser_known(app: App, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("anna")
    assert "kcover_device" not in browser.client.cookies


# --- recovery codes


def test_each_recovery_code_signs_in_once(app: App, anna: User, clock: Clock) -> None:
    codes = recovery_codes.make(anna, actor="user:anna", now=clock.now)
    assert (len(codes), len(set(codes))) == (10, 10)
    first, again = Browser(), Browser()
    first.sign_in("anna")
    assert give(first, codes[3].upper()).status_code == 302
    assert recorded("user.signed_in")[-1].factor == "recovery_code"
    again.sign_in("anna")
    assert give(again, codes[3]).status_code == 422
    assert give(again, codes[4].replace("-", " ")).status_code == 302
    assert recovery_codes.count_left(anna) == 8


def test_recovery_codes_are_stored_as_hashes_and_replaced_together(app: App, anna: User, clock: Clock) -> None:
    earlier = recovery_codes.make(anna, actor="user:anna", now=clock.now)
    codes = recovery_codes.make(anna, actor="user:anna", now=clock.now)
    kept = str(list(RecoveryCode.objects.values())) + str(list(Entry.objects.values()))
    assert not [code for code in codes if code in kept or code.replace("-", "") in kept]
    assert not recovery_codes.accept(anna, earlier[0], now=clock.now)
    assert recovery_codes.accept(anna, codes[0], now=clock.now)


def test_the_recovery_code_of_another_person_is_refused(app: App, clock: Clock) -> None:
    codes = recovery_codes.make(make_user("bo", clock.now), actor="user:bo", now=clock.now)
    browser = Browser()
    browser.sign_in("anna")
    assert give(browser, codes[0]).status_code == 422


# --- seeds


def test_a_seed_is_stored_encrypted(app: App, clock: Clock) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT seed FROM accounts_totpdevice")
        [(stored,)] = cursor.fetchall()
    assert stored
    assert app.totp.secret not in stored + str(list(Entry.objects.values()))


def test_a_seed_that_was_moved_to_another_account_cannot_be_read(app: App, anna: User, clock: Clock) -> None:
    bo = make_user("bo", clock.now)
    TotpDevice.objects.filter(user=anna).update(user=bo)
    with refused(services.Refused, "seed_unreadable"):
        totp.accept(bo, app.code(clock.now), now=clock.now)


def test_a_setup_belongs_to_one_person_and_ends(anna: User, clock: Clock) -> None:
    setup = totp.new_setup(anna, now=clock.now)
    with refused(services.Refused, "setup_expired"):
        totp.seed_of(setup, make_user("bo", clock.now), now=clock.now)
    with refused(services.Refused, "setup_expired"):
        totp.seed_of(setup, anna, now=clock.now + timedelta(minutes=16))
    with refused(services.Refused, "setup_expired"):
        totp.seed_of("nonsense", anna, now=clock.now)


# --- when a factor is required


@pytest.mark.parametrize(
    ("setting", "role", "asked"),
    [
        ("off", "admin", False),
        ("approvers", "operator", False),
        ("approvers", "approver", True),
        ("approvers", "admin", True),
        ("all", "viewer", True),
    ],
)
def test_the_setting_decides_which_roles_must_add_a_factor(
    setting: str, role: str, asked: bool, clock: Clock, settings: Any
) -> None:
    settings.KCOVER_SECOND_FACTOR = setting
    settings.KCOVER_DEMO_URL = "http://sim.example"  # a demo does not ask admins for a first policy pack
    make_user("li", clock.now, role)
    browser = Browser()
    response = browser.sign_in("li")
    assert response.url == ("/sign-in/enrol/" if asked else "/")
    assert is_in(browser) is not asked


@pytest.mark.parametrize(
    ("setting", "role", "place", "asked"),
    [
        ("off", "admin", ("east", ""), False),
        ("approvers", "operator", ("east", ""), False),
        ("approvers", "approver", ("east", ""), True),
        ("approvers", "approver", ("east", "a100"), True),
        ("approvers", "approver", ("west", ""), False),
        ("approvers", "admin", None, True),
        ("all", "viewer", ("east", "a100"), True),
        ("all", "admin", ("west", ""), False),
        ("all", "viewer", None, True),
    ],
)
def test_a_cluster_requires_a_factor_of_people_with_a_role_in_it(
    setting: str, role: str, place: tuple[str, str] | None, asked: bool, clock: Clock, settings: Any
) -> None:
    settings.KCOVER_DEMO_URL = "http://sim.example"
    for name in ("east", "west"):
        Cluster.objects.create(name=name, created_at=clock.now)
    Cluster.objects.filter(name="east").update(second_factor=setting)
    user = make_user("li", clock.now, role)
    if place is not None:
        services.unbind(user, actor="test", now=clock.now)
        cluster = Cluster.objects.get(name=place[0])
        services.bind(user, role, cluster=cluster, pool=place[1], actor="test", now=clock.now)
    browser = Browser()
    assert browser.sign_in("li").url == ("/sign-in/enrol/" if asked else "/")
    assert is_in(browser) is not asked


def test_a_roles_in_two_places_are_not_added_up_across_clusters(clock: Clock) -> None:
    east, west = (Cluster.objects.create(name=name, created_at=clock.now) for name in ("east", "west"))
    Cluster.objects.filter(name="east").update(second_factor="approvers")
    user = make_user("li", clock.now, "viewer")
    services.bind(user, "operator", cluster=east, actor="test", now=clock.now)
    services.bind(user, "approver", cluster=west, actor="test", now=clock.now)
    assert not queries.second_factor_required(User.objects.get(pk=user.pk))


def test_the_last_factor_that_a_cluster_requires_cannot_be_removed(anna: User, app: App, clock: Clock) -> None:
    Cluster.objects.create(name="east", created_at=clock.now, second_factor="all")
    with refused(services.Refused, "last_factor"):
        second_factors.remove_totp(User.objects.get(pk=anna.pk), now=clock.now)


def test_a_person_adds_an_app_at_sign_in_and_gets_recovery_codes(anna: User, clock: Clock, settings: Any) -> None:
    settings.KCOVER_SECOND_FACTOR = "approvers"
    browser = Browser()
    browser.sign_in("anna")
    page = browser.client.get("/sign-in/enrol/")
    setup = page.context["setup"]
    assert "<svg" in page.content.decode()
    assert page.headers["Cache-Control"].count("no-store") == 1
    wrong = browser.client.post("/sign-in/enrol/", {"setup": setup.state, "code": "000000"})
    assert wrong.status_code == 422
    assert wrong.context["setup"].seed == setup.seed, "the app was already scanned"
    assert not is_in(browser)
    clock.advance(seconds=30)
    done = browser.client.post("/sign-in/enrol/", {"setup": setup.state, "code": App(setup.seed).code(clock.now)})
    assert done.status_code == 200
    assert len(done.context["codes"]) == 10
    assert is_in(browser)
    assert recorded("factor.enrolled") == [audit.FactorEnrolled(user="anna", factor="totp")]
    assert recorded("user.signed_in")[-1].factor == "totp"
    assert len(recorded("factor.recovery_codes")) == 1


def test_an_account_with_a_factor_cannot_add_one_at_sign_in(app: App, clock: Clock, settings: Any) -> None:
    settings.KCOVER_SECOND_FACTOR = "all"
    browser = Browser()
    browser.sign_in("anna")
    assert browser.client.get("/sign-in/enrol/").url == "/sign-in/factor/"
    assert TotpDevice.objects.count() == 1


def test_the_counters_hold_no_names(app: App, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("anna")
    give(browser, "000000")
    assert "anna" not in str(list(AttemptCounter.objects.values()))
