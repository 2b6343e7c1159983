"""Grave actions on the console ask for a fresh second factor: from people who have one, or whose role needs one."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from kcover import audit
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import ApiToken, RoleBinding, Session, TotpDevice, User
from kcover_portal.accounts.services import recovery_codes
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.notify.models import Channel, Route
from kcover_portal.notify.services import channels
from kcover_portal.runtime import queries as runtime
from tests.portal.accounts.browsers import Browser, Clock, make_user, wait_of
from tests.portal.accounts.second_factors import App, enrol, give, is_in

pytestmark = pytest.mark.django_db
WHY = {"reason": "tuned"}
CHANNEL = {"name": "ops", "url": "https://chat.example.com/x", "language": "en", "batching": "9", "min_interval": "0"}


@pytest.fixture
def root(clock: Clock) -> User:
    return make_user("root", clock.now, "admin")


@pytest.fixture
def east(clock: Clock) -> Cluster:
    return Cluster.objects.create(name="east", mode="shadow", created_at=clock.now)


@pytest.fixture
def app(root: User, clock: Clock) -> App:
    return enrol(root, clock.now)


@pytest.fixture
def browser(app: App, clock: Clock) -> Browser:
    """Signed in with a factor, eleven minutes ago."""
    made = Browser()
    made.sign_in("root")
    assert give(made, app.code(clock.now)).status_code == 302
    clock.advance(minutes=11)
    return made


def recorded(verb: str) -> list[Any]:
    return [audit.from_entry(entry) for entry in Entry.objects.filter(verb=verb).order_by("pk")]


def asked(response: Any) -> bool:
    """Whether the response asks for a factor instead of acting."""
    return response.status_code == 422 and "factor_code" in response.content.decode()


def test_a_resume_asks_and_goes_on_with_the_code(browser: Browser, app: App, clock: Clock) -> None:
    assert browser.client.post("/pause/", WHY).status_code == 302, "a pause never asks"
    first = browser.client.post("/resume/", WHY)
    assert asked(first)
    assert runtime.installation().mode == "paused"
    assert 'name="reason" value="tuned"' in first.content.decode(), "what was typed is kept"
    done = browser.client.post("/resume/", {**WHY, "factor_code": app.code(clock.now)})
    assert done.status_code == 302
    assert runtime.installation().mode != "paused"
    assert recorded("factor.confirmed") == [audit.FactorConfirmed(user="root", factor="totp", address="192.0.2.1")]


def test_a_confirmation_holds_for_ten_minutes(browser: Browser, app: App, clock: Clock) -> None:
    browser.client.post("/resume/", {**WHY, "factor_code": app.code(clock.now)})
    clock.advance(minutes=10)
    assert browser.client.post("/resume/", WHY).status_code == 302
    clock.advance(seconds=1)
    assert asked(browser.client.post("/resume/", WHY))


def test_the_factor_of_the_sign_in_is_fresh_too(app: App, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("root")
    give(browser, app.code(clock.now))
    assert browser.client.post("/resume/", WHY).status_code == 302


def test_a_code_confirms_once_and_not_after_a_sign_in(app: App, browser: Browser, clock: Clock) -> None:
    code = app.code(clock.now)
    other = Browser()
    other.sign_in("root")
    assert give(other, code).status_code == 302
    assert asked(browser.client.post("/resume/", {**WHY, "factor_code": code}))


def test_a_stolen_session_cannot_guess_the_code(browser: Browser, app: App, clock: Clock) -> None:
    for number in range(5):
        assert asked(browser.client.post("/resume/", {**WHY, "factor_code": f"{number:06}"}))
    assert wait_of(browser.client.post("/resume/", {**WHY, "factor_code": app.code(clock.now)})) == 1
    assert recorded("factor.failed")[0].user == "root"
    owner = Browser("203.0.113.5")
    owner.sign_in("root")
    assert give(owner, app.code(clock.now)).status_code == 302, "the sign-in has a counter of its own"


def test_a_recovery_code_confirms_once(browser: Browser, root: User, clock: Clock) -> None:
    code = recovery_codes.make(root, actor="user:root", now=clock.now)[0]
    assert browser.client.post("/resume/", {**WHY, "factor_code": code}).status_code == 302
    clock.advance(minutes=11)
    assert asked(browser.client.post("/resume/", {**WHY, "factor_code": code}))


def test_the_dialog_of_htmx_gets_the_form(browser: Browser) -> None:
    response = browser.client.post("/resume/", WHY, headers={"HX-Request": "true", "HX-Target": "dialog"})
    assert asked(response)
    assert response.headers["HX-Retarget"] == "#dialog"
    assert 'hx-post="/resume/"' in response.content.decode()


@pytest.mark.parametrize(("mode", "due"), [("paused", False), ("shadow", False), ("approve", True), ("enforce", True)])
def test_only_a_looser_mode_asks(mode: str, due: bool, browser: Browser, east: Cluster) -> None:
    response = browser.client.post("/safety/east/mode/", {"mode": mode, **WHY})
    assert asked(response) is due
    east.refresh_from_db()
    assert (east.mode == mode) is not due


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/safety/east/guards/cooldown/", {"cooldown": "1h", **WHY}),
        ("/access/tokens/new/", {"kind": "operator", "name": "ci"}),
        ("/access/users/new/", {"username": "li", "password": "long-enough-1", "role": "admin"}),
        ("/access/users/invite/", {"username": "li", "role": "admin"}),
        ("/access/users/{bo}/role/", {"role": "admin"}),
        ("/access/users/{bo}/password/", {"password": "long-enough-1"}),
        ("/access/users/{bo}/second-factors/", WHY),
        ("/access/users/{bo}/enable/", WHY),
        ("/access/users/{bo}/disable/", WHY),
        ("/access/users/{bo}/sessions/", WHY),
        ("/access/roles/new/", {"name": "night", "verbs": "read"}),
        ("/access/groups/new/", {"group": "ops", "role": "admin"}),
        ("/notifications/new/slack/", CHANNEL),
        ("/notifications/routes/new/", {"channel": "desk", "kinds": "rescue.failed", "cluster": "", "least": ""}),
        ("/notifications/channels/desk/delete/", WHY),
    ],
)
def test_acts_that_loosen_a_bound_grant_rights_or_silence_ask_for_the_factor(
    path: str, sent: dict[str, str], browser: Browser, east: Cluster, app: App, clock: Clock
) -> None:
    bo = make_user("bo", clock.now)
    channels.CHANNELS.make(Channel(name="desk", kind="slack"), {"url": CHANNEL["url"]}, actor="test", now=clock.now)
    before = (User.objects.count(), ApiToken.objects.count(), RoleBinding.objects.count())
    password = bo.password
    address = path.format(bo=bo.pk)
    assert asked(browser.client.post(address, sent))
    bo.refresh_from_db()
    assert (User.objects.count(), ApiToken.objects.count(), RoleBinding.objects.count()) == before
    assert (bo.password, bo.is_active) == (password, True)
    assert (Channel.objects.count(), Route.objects.count()) == (1, 0)


def test_a_typed_password_is_not_put_into_the_form(browser: Browser) -> None:
    sent = {"username": "li", "password": "long-enough-1", "role": "admin"}
    assert "long-enough-1" not in browser.client.post("/access/users/new/", sent).content.decode()


def test_an_account_without_a_factor_is_not_asked_for_one(root: User, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("root")
    assert browser.client.post("/resume/", WHY).status_code == 302


def test_a_role_that_needs_a_factor_cannot_act_without_one(root: User, clock: Clock, settings: Any) -> None:
    browser = Browser()
    browser.sign_in("root")
    settings.KCOVER_SECOND_FACTOR = "approvers"
    response = browser.client.post("/resume/", WHY)
    assert response.status_code == 422
    assert "/account/second-factor/" in response.content.decode()
    assert browser.client.post("/pause/", WHY).status_code == 302


def test_an_open_session_cannot_act_once_a_cluster_asks_for_a_factor(root: User, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("root")
    Cluster.objects.create(name="east", created_at=clock.now, second_factor="approvers")
    response = browser.client.post("/resume/", WHY)
    assert (response.status_code, "/account/second-factor/" in response.content.decode()) == (422, True)
    assert browser.client.post("/pause/", WHY).status_code == 302


# --- the own factors


def add_app(browser: Browser, clock: Clock) -> Any:
    setup = browser.client.get("/account/second-factor/").context["setup"]
    sent = {"setup": setup.state, "code": App(setup.seed).code(clock.now)}
    return browser.client.post("/account/second-factor/", sent)


def test_adding_the_first_factor_ends_the_other_sessions_and_shows_codes(root: User, clock: Clock) -> None:
    here, other = Browser(), Browser()
    here.sign_in("root")
    other.sign_in("root")
    done = add_app(here, clock)
    assert len(done.context["codes"]) == 10
    assert (is_in(here), is_in(other)) == (True, False)
    assert asked(here.client.post("/resume/", WHY))


def test_a_stolen_session_cannot_add_a_factor_without_the_password(root: User, clock: Clock) -> None:
    thief = Browser()
    thief.sign_in("root")
    clock.advance(minutes=11)
    page = thief.client.get("/account/second-factor/")
    assert page.status_code == 422
    assert "setup" not in page.context
    wrong = thief.client.post("/account/confirm/", {"password": "guess", "next": "/account/second-factor/"})
    assert wrong.status_code == 422
    assert recorded("password.change_failed")[0].user == "root"
    right = thief.client.post(
        "/account/confirm/", {"password": "correct horse battery", "next": "/account/second-factor/"}
    )
    assert (right.status_code, right.url) == (302, "/account/second-factor/")
    assert add_app(thief, clock).status_code == 200


def test_a_confirmation_leads_to_no_other_site(root: User, clock: Clock) -> None:
    browser = Browser()
    browser.sign_in("root")
    assert browser.client.post("/account/confirm/", {"next": "https://evil.example/"}).url == "/account/"


def test_removing_a_factor_needs_it(browser: Browser, app: App, clock: Clock) -> None:
    assert asked(browser.client.get("/account/app/remove/"))
    assert asked(browser.client.post("/account/app/remove/"))
    assert TotpDevice.objects.count() == 1
    done = browser.client.post("/account/app/remove/", {"factor_code": app.code(clock.now)})
    assert done.status_code == 302
    assert TotpDevice.objects.count() == 0
    assert recorded("factor.removed") == [audit.FactorRemoved(user="root", factor="totp")]


def test_the_last_factor_stays_while_the_role_needs_it(browser: Browser, app: App, clock: Clock, settings: Any) -> None:
    settings.KCOVER_SECOND_FACTOR = "all"
    done = browser.client.post("/account/app/remove/", {"factor_code": app.code(clock.now)})
    assert done.status_code == 422
    assert TotpDevice.objects.count() == 1


def test_new_recovery_codes_replace_the_earlier_ones(browser: Browser, root: User, app: App, clock: Clock) -> None:
    earlier = recovery_codes.make(root, actor="user:root", now=clock.now)
    done = browser.client.post("/account/recovery-codes/", {"factor_code": app.code(clock.now)})
    assert len(done.context["codes"]) == 10
    assert not recovery_codes.accept(root, earlier[0], now=clock.now)


# --- reset by an admin


def test_an_admin_resets_the_lost_factors_of_a_person(browser: Browser, app: App, clock: Clock) -> None:
    bo = make_user("bo", clock.now)
    enrol(bo, clock.now)
    recovery_codes.make(bo, actor="user:bo", now=clock.now)
    TotpDevice.objects.filter(user=bo).update(last_step=0)
    session = Client()
    session.force_login(bo)
    sent = {"reason": "lost phone", "factor_code": app.code(clock.now)}
    assert browser.client.post(f"/access/users/{bo.pk}/second-factors/", sent).status_code == 302
    assert not TotpDevice.objects.filter(user=bo).exists()
    assert not bo.recovery_codes.exists()
    assert not Session.objects.filter(user=bo).exists()
    entry = Entry.objects.get(verb="factor.reset")
    assert audit.from_entry(entry) == audit.FactorsReset(user="bo", totp=True, passkeys=0, reason="lost phone")
    assert entry.actor == "user:root"


def test_an_admin_cannot_reset_the_own_factors(browser: Browser, root: User, app: App, clock: Clock) -> None:
    sent = {"reason": "lost phone", "factor_code": app.code(clock.now)}
    assert browser.client.post(f"/access/users/{root.pk}/second-factors/", sent).status_code == 422
    assert TotpDevice.objects.count() == 1


def test_a_clock_that_goes_back_makes_nothing_fresh(browser: Browser, app: App, clock: Clock) -> None:
    clock.now -= timedelta(hours=1)
    assert asked(browser.client.post("/resume/", WHY))


@pytest.mark.parametrize("act", ["reset", "invite"])
def test_an_admin_who_reset_or_invited_an_account_controls_it_for_a_day(
    act: str, browser: Browser, app: App, clock: Clock
) -> None:
    code = app.code(clock.now)
    if act == "reset":
        bo = make_user("bo", clock.now - timedelta(days=2))
        browser.client.post(f"/access/users/{bo.pk}/second-factors/", {"reason": "x", "factor_code": code})
    else:
        sent = {"username": "bo", "role": "approver", "factor_code": code}
        browser.client.post("/access/users/invite/", sent)
    assert queries.controllers("user:bo", at=clock.now + timedelta(hours=1)) == ["user:root"]
    assert queries.controllers("user:bo", at=clock.now + timedelta(days=2)) == []
