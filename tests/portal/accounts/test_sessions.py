"""How long a session lasts, who sees it and who ends it."""

import importlib
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.apps import apps

from kcover import audit
from kcover_portal.accounts import queries, services, tasks
from kcover_portal.accounts.models import Session, User
from kcover_portal.ledger.models import Entry
from tests.portal.accounts.browsers import PASSWORD, Browser, Clock, make_user

pytestmark = pytest.mark.django_db
NEW = "another long password"


def signed_in(name: str = "anna", address: str = "192.0.2.1", **headers: str) -> Browser:
    browser = Browser(address, **headers)
    assert browser.sign_in(name).status_code == 302
    return browser


def is_in(browser: Browser) -> bool:
    return browser.client.get("/nodes/").status_code == 200


@pytest.fixture
def anna(clock: Clock) -> User:
    return make_user("anna", clock.now)


# --- limits


def test_a_session_ends_when_it_is_idle(anna: User, clock: Clock) -> None:
    browser = signed_in()
    clock.advance(hours=7, minutes=59)
    assert is_in(browser)
    clock.advance(hours=8)
    assert not is_in(browser)


def test_a_session_ends_twelve_hours_after_the_sign_in_however_it_is_used(anna: User, clock: Clock) -> None:
    browser = signed_in()
    for _ in range(23):
        clock.advance(minutes=30)
        assert is_in(browser)
        session = browser.client.session
        session["used"] = clock.now.isoformat()
        session.save()
    clock.advance(minutes=30)
    assert not is_in(browser)


def test_the_idle_limit_is_a_setting(anna: User, clock: Clock, settings: Any) -> None:
    settings.KCOVER_SESSION_IDLE_MINUTES = 15
    browser = signed_in()
    clock.advance(minutes=14)
    assert is_in(browser)
    clock.advance(minutes=15)
    assert not is_in(browser)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/nodes/", {"HX-Request": "true", "HX-Trigger": "live", "HX-Target": "live"}),
        ("/map.json", {}),
        ("/trends/", {"HX-Request": "true"}),
    ],
)
def test_an_open_page_that_fetches_itself_again_does_not_keep_its_session(
    path: str, headers: dict[str, str], anna: User, clock: Clock
) -> None:
    browser = signed_in()
    for _ in range(16):
        clock.advance(minutes=29)
        assert browser.client.get(path, headers=headers).status_code == 200
    clock.advance(minutes=29)
    assert not is_in(browser)


def test_the_use_of_a_session_is_noted_once_a_minute(anna: User, clock: Clock) -> None:
    browser = signed_in()
    start = Session.objects.get().seen_at
    clock.advance(seconds=59)
    is_in(browser)
    assert Session.objects.get().seen_at == start
    clock.advance(seconds=1)
    is_in(browser)
    assert Session.objects.get().seen_at == start + timedelta(minutes=1)


def test_ended_sessions_are_deleted_by_the_clean_up(anna: User, clock: Clock) -> None:
    signed_in()
    clock.advance(hours=7)
    signed_in()
    tasks.prune()
    assert Session.objects.count() == 2
    clock.advance(hours=1)
    tasks.prune()
    assert Session.objects.count() == 1
    clock.advance(hours=12)
    tasks.prune()
    assert Session.objects.count() == 0


# --- the own sessions


def rows(browser: Browser) -> list[tuple[str, str, bool]]:
    """Browser, address and whether it is the current one, of each listed session."""
    listed = browser.client.get("/account/").context["sessions"]
    return [(session.browser, session.address, current) for session, current in listed]


def test_people_see_their_own_sessions(anna: User, clock: Clock) -> None:
    make_user("bo", clock.now)
    signed_in("bo")
    signed_in(address="203.0.113.5", **{"User-Agent": "Phone/1"})
    clock.advance(minutes=1)
    here = signed_in(**{"User-Agent": "Desk/2 " + "x" * 300})
    listed = rows(here)
    assert [(address, current) for _name, address, current in listed] == [("192.0.2.1", True), ("203.0.113.5", False)]
    assert listed[1][0] == "Phone/1"
    assert len(listed[0][0]) == 200
    page = here.client.get("/account/").content.decode()
    assert not [key for key in Session.objects.values_list("session_key", flat=True) if key in page]


def test_stored_session_keys_do_not_open_a_session(anna: User, clock: Clock) -> None:
    browser, thief = signed_in(), Browser()
    [stored] = Session.objects.values_list("session_key", flat=True)
    assert stored != browser.client.cookies["sessionid"].value
    thief.client.cookies["sessionid"] = stored
    assert not is_in(thief)
    assert is_in(browser)
    browser.client.post("/sign-out/")
    assert not Session.objects.exists()


def test_an_upgrade_keeps_sessions_signed_in(anna: User, clock: Clock) -> None:
    browser = signed_in()
    key = browser.client.cookies["sessionid"].value
    Session.objects.update(session_key=key)  # as an older portal stored it
    assert not is_in(browser)
    browser.client.cookies["sessionid"] = key
    upgrade = importlib.import_module("kcover_portal.accounts.migrations.0005_session_digests")
    for _ in range(2):  # a migration that is run again changes nothing
        upgrade.digest(apps, None)
        assert is_in(browser)


def test_a_person_ends_one_session(anna: User, clock: Clock) -> None:
    here, lost = signed_in(), signed_in(address="203.0.113.5")
    other = next(session for session in Session.objects.all() if session.address == "203.0.113.5")
    assert here.client.post(f"/account/sessions/{other.public_id}/end/").status_code == 302
    assert (is_in(here), is_in(lost)) == (True, False)
    entry = Entry.objects.get(verb="user.sessions_ended")
    assert audit.from_entry(entry) == audit.SessionsEnded(user="anna", count=1)
    assert entry.actor == "user:anna"
    assert here.client.post(f"/account/sessions/{other.public_id}/end/").status_code == 404


def test_a_person_ends_all_other_sessions(anna: User, clock: Clock) -> None:
    make_user("bo", clock.now)
    here, *others, bo = signed_in(), signed_in(), signed_in(), signed_in("bo")
    assert here.client.post("/account/sessions/end/").status_code == 302
    assert [is_in(browser) for browser in (here, *others, bo)] == [True, False, False, True]
    assert audit.from_entry(Entry.objects.get(verb="user.sessions_ended")).count == 2


def test_a_session_of_another_person_cannot_be_ended_by_its_id(anna: User, clock: Clock) -> None:
    make_user("bo", clock.now)
    victim, bo = signed_in(), signed_in("bo")
    for session in queries.live_sessions(clock.now).filter(user=anna):
        assert bo.client.post(f"/account/sessions/{session.public_id}/end/").status_code == 404
    assert is_in(victim)
    assert bo.client.get("/account/sessions/end/").status_code == 405


def test_an_admin_ends_the_sessions_of_a_person(anna: User, clock: Clock) -> None:
    make_user("root", clock.now, "admin")
    victim, root = signed_in(), signed_in("root")
    address = f"/access/users/{anna.pk}/sessions/"
    assert victim.client.post(address, {"reason": "stolen laptop"}).status_code == 403
    assert root.client.post(address, {"reason": ""}).status_code == 422
    assert root.client.post(address, {"reason": "stolen laptop"}).status_code == 302
    assert (is_in(victim), is_in(root)) == (False, True)
    entry = Entry.objects.get(verb="user.sessions_ended")
    assert audit.from_entry(entry) == audit.SessionsEnded(user="anna", count=1, reason="stolen laptop")
    assert entry.actor == "user:root"


# --- the own password


def change(browser: Browser, old: str, new: str, **headers: str) -> Any:
    return browser.client.post("/account/password/", {"old_password": old, "new_password": new}, headers=headers)


def codes(response: Any, field: str) -> int:
    return len(response.context["form"].errors.get(field, []))


def test_a_person_changes_the_own_password_and_the_other_sessions_end(anna: User, clock: Clock) -> None:
    here, other = signed_in(), signed_in()
    assert change(here, PASSWORD, NEW).status_code == 302
    assert Session.objects.filter(user=anna).count() == 1
    assert (is_in(here), is_in(other)) == (True, False)
    assert User.objects.get().check_password(NEW)
    entry = Entry.objects.get(verb="password.changed")
    assert (audit.from_entry(entry), entry.actor) == (audit.PasswordChanged(user="anna"), "user:anna")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("not this one", NEW, "old_password"),
        (PASSWORD, "short", "new_password"),
        (PASSWORD, PASSWORD, "new_password"),
        (PASSWORD, "", "new_password"),
        ("", NEW, "old_password"),
    ],
)
def test_a_change_that_is_refused_names_the_field(old: str, new: str, field: str, anna: User, clock: Clock) -> None:
    here, other = signed_in(), signed_in()
    response = change(here, old, new)
    assert response.status_code == 422
    assert codes(response, field) == 1
    assert (is_in(here), is_in(other)) == (True, True)
    assert User.objects.get().check_password(PASSWORD)


def test_the_old_password_cannot_be_guessed_with_a_stolen_session(anna: User, clock: Clock) -> None:
    thief, owner = signed_in(), signed_in(address="203.0.113.5")
    assert [change(thief, f"guess {number}", NEW).status_code for number in range(7)] == [422] * 5 + [429] * 2
    refused = change(thief, PASSWORD, NEW)
    assert refused.headers["Retry-After"] == "1"
    clock.advance(minutes=1)
    change(thief, "guess", NEW)
    acts = [audit.from_entry(entry) for entry in Entry.objects.filter(verb="password.change_failed").order_by("pk")]
    assert [(act.user, act.address, act.count, act.refused) for act in acts] == [
        ("anna", "192.0.2.1", 1, 0),
        ("anna", "192.0.2.1", 8, 3),
    ]
    assert owner.client.post("/account/sessions/end/").status_code == 302
    assert not is_in(thief)
    assert signed_in()  # the sign-in has counters of its own


def test_a_password_keeps_its_spaces(clock: Clock) -> None:
    make_user("root", clock.now, "admin")
    root, spaced = signed_in("root"), "  spaces around this "
    given = {"username": "li", "password": spaced, "role": "viewer"}
    assert root.client.post("/access/users/new/", given).status_code == 302
    assert Browser().sign_in("li", spaced).status_code == 302


def test_a_password_set_by_an_admin_ends_the_sessions(anna: User, clock: Clock) -> None:
    victim = signed_in()
    services.set_password(anna, NEW, actor="user:root", now=clock.now)
    assert not Session.objects.filter(user=anna).exists()
    assert not is_in(victim)


def test_every_sign_in_is_a_session_of_its_own(anna: User, clock: Clock, now: datetime) -> None:
    browser = signed_in()
    first = Session.objects.get(user=anna)
    clock.advance(hours=5)
    browser.client.post("/sign-out/")
    assert not Session.objects.filter(pk=first.pk).exists()
    browser.sign_in("anna")
    assert Session.objects.get(user=anna).created_at == now + timedelta(hours=5)
