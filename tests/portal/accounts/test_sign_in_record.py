"""The audit log records sign-ins, failures and sign-outs, without passwords and without floods of entries."""

import logging
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from kcover import audit
from kcover_portal.accounts import tasks
from kcover_portal.accounts.models import FailedAttempts
from kcover_portal.accounts.services import failed_attempts
from kcover_portal.console.reads import entries
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from tests.portal.accounts.browsers import PASSWORD, WRONG, Browser, Clock, make_user

pytestmark = pytest.mark.django_db


def recorded(verb: str) -> list[Any]:
    """The acts of a verb, oldest first."""
    return [audit.from_entry(entry) for entry in Entry.objects.filter(verb=verb, cluster="").order_by("pk")]


def note(name: str, address: str, now: datetime, *, refused: bool = False) -> None:
    failed_attempts.note(audit.SignInFailed, name, address=address, refused=refused, now=now)


def test_a_sign_in_and_a_sign_out_are_on_record(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    make_user("anna", clock.now)
    browser = Browser("192.0.2.9")
    with caplog.at_level(logging.INFO):
        browser.sign_in("anna")
        browser.client.post("/sign-out/")
    assert recorded("user.signed_in") == [audit.SignedIn(user="anna", address="192.0.2.9")]
    assert recorded("user.signed_out") == [audit.SignedOut(user="anna")]
    assert set(Entry.objects.filter(verb__startswith="user.").values_list("actor", flat=True)) == {"user:anna"}
    assert "user.signed_in: user anna, address 192.0.2.9" in caplog.text
    assert "user.signed_out: user anna" in caplog.text


def test_signing_out_without_a_session_is_no_act(clock: Clock) -> None:
    assert Browser().client.post("/sign-out/").status_code == 302
    assert Entry.objects.count() == 0


def test_a_failure_is_on_record_without_the_password(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    make_user("anna", clock.now)
    Browser("192.0.2.9").sign_in("anna", WRONG)
    assert recorded("user.sign_in_failed") == [audit.SignInFailed(user="anna", address="192.0.2.9", count=1)]
    assert Entry.objects.get(verb="user.sign_in_failed").actor == "nobody"
    assert "user.sign_in_failed: user anna" in caplog.text
    assert WRONG not in caplog.text + str(list(Entry.objects.values()))


def test_a_password_in_the_field_of_the_name_is_not_kept(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    Browser("192.0.2.9").sign_in(PASSWORD, "x")
    assert recorded("user.sign_in_failed") == [audit.SignInFailed(user="", address="192.0.2.9", count=1)]
    kept = [*Entry.objects.values(), *FailedAttempts.objects.values()]
    assert PASSWORD not in caplog.text + str(kept)


def test_the_first_failure_is_an_entry_and_the_others_are_counted(now: datetime) -> None:
    make_user("anna", now)
    for second in range(60):
        note("anna", "192.0.2.1", now + timedelta(seconds=second), refused=second % 2 == 1)
    assert [(act.count, act.refused) for act in recorded("user.sign_in_failed")] == [(1, 0)]
    note("anna", "192.0.2.1", now + timedelta(seconds=60))
    assert [(act.count, act.refused) for act in recorded("user.sign_in_failed")] == [(1, 0), (60, 30)]


def test_a_name_without_an_account_costs_the_same_statements(now: datetime) -> None:
    make_user("anna", now)
    note("ben", "192.0.2.1", now)  # another name has a row already
    for second in range(2):
        costs = []
        for name in ("anna", "nobody-has-this-name"):
            with CaptureQueriesContext(connection) as asked:
                note(name, "192.0.2.1", now + timedelta(seconds=second))
            costs.append([query["sql"].split()[0] for query in asked])
        assert costs[0] == costs[1]
    assert {act.user for act in recorded("user.sign_in_failed")} == {"anna", ""}


def test_counted_failures_are_recorded_after_the_last_one(clock: Clock) -> None:
    for _ in range(3):
        note("anna", "192.0.2.1", clock.now)
    tasks.record_failed_attempts()
    assert [act.count for act in recorded("user.sign_in_failed")] == [1]
    clock.advance(minutes=1)
    tasks.record_failed_attempts()
    assert [act.count for act in recorded("user.sign_in_failed")] == [1, 2]
    assert FailedAttempts.objects.count() == 1
    clock.advance(minutes=1)
    tasks.record_failed_attempts()
    assert [act.count for act in recorded("user.sign_in_failed")] == [1, 2]
    assert FailedAttempts.objects.count() == 0


def test_a_flood_from_many_addresses_is_few_entries(now: datetime) -> None:
    for minute in range(3):
        for number in range(200):
            note(f"user-{number}", f"10.0.{minute}.{number}", now + timedelta(minutes=minute))
        failed_attempts.flush(now=now + timedelta(minutes=minute, seconds=59))
    failed_attempts.flush(now=now + timedelta(minutes=4))
    acts = recorded("user.sign_in_failed")
    assert sum(act.count for act in acts) == 600
    assert len(acts) <= 3 * (failed_attempts.MAX_ROWS + 1) + 1
    assert FailedAttempts.objects.count() <= failed_attempts.MAX_ROWS + 1
    assert max(act.count for act in acts if act.address == "") > 100
    assert ledger.verify("").intact


def test_the_audit_log_explains_a_failure_in_both_languages(now: datetime) -> None:
    make_user("anna", now)
    note("anna", "192.0.2.1", now)
    entry = Entry.objects.get(verb="user.sign_in_failed")
    with translation.override("zh-hans"):
        chinese = entries.title(entry), entries.why(entry)
    assert "192.0.2.1" in chinese[1]
    assert chinese[0] != entries.title(entry)
    assert chinese[1] != entries.why(entry)


def test_failed_sign_ins_are_written_every_minute() -> None:
    from kcover_portal.celery import app  # noqa: PLC0415

    scheduled = {entry["task"]: entry["schedule"] for entry in app.conf.beat_schedule.values()}
    assert scheduled["accounts.record_failed_attempts"] == 60.0
