"""Changes of one's own password over REST."""

from datetime import datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import User
from kcover_portal.ledger.models import Entry
from tests.portal.accounts.browsers import Clock
from tests.portal.api.conftest import Api, problem

pytestmark = pytest.mark.django_db
OLD, NEW = "correct horse battery", "another long password"
PATH = "account/password"


@pytest.fixture
def anna(now: datetime) -> User:
    return accounts.make_user("anna", password=OLD, role="viewer", created_by="test", now=now)


def session(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def change(api: Api, old: str, new: str, **headers: str) -> Any:
    return api.post(PATH, {"old_password": old, "new_password": new}, **headers)


def test_a_person_changes_the_own_password(anna: User) -> None:
    here, other = Api(client=session(anna)), Api(client=session(anna))
    assert change(here, OLD, NEW).status_code == 204
    assert User.objects.get().check_password(NEW)
    assert here.get("clusters").status_code == 200
    assert other.get("clusters").status_code == 401
    assert Entry.objects.get(verb="password.changed").actor == "user:anna"


@pytest.mark.parametrize(
    ("old", "new", "field", "code"),
    [
        ("no", NEW, "old_password", "old_password_wrong"),
        (OLD, OLD, "new_password", "password_unchanged"),
    ],
)
def test_a_wrong_field_is_named(old: str, new: str, field: str, code: str, anna: User) -> None:
    [error] = problem(change(Api(client=session(anna)), old, new), 400)["errors"]
    assert (error["field"], error["code"]) == (field, code)


def test_a_weak_password_is_refused(anna: User) -> None:
    assert problem(change(Api(client=session(anna)), OLD, "short"), 422)["code"] == "password_too_short"


def test_guesses_are_throttled_with_a_code_in_both_languages(anna: User, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, timezone.now())  # it stands still
    api = Api(client=session(anna))
    for _ in range(5):
        problem(change(api, "no", NEW), 400)
    english, chinese = change(api, OLD, NEW), change(api, OLD, NEW, Accept_Language="zh-hans")
    for response in (english, chinese):
        assert problem(response, 429)["code"] == "attempts_throttled"
        assert int(response.headers["Retry-After"]) == 1
    assert english.json()["detail"] != chinese.json()["detail"]
    assert User.objects.get().check_password(OLD)


@pytest.mark.parametrize("kind", ["viewer", "operator"])
def test_a_token_has_no_password(kind: str, anna: User, now: datetime) -> None:
    _, secret = accounts.make_token(kind, created_by="user:anna", now=now)
    assert problem(change(Api(secret), OLD, NEW), 403)["code"] == "password_of_person"


def test_a_page_of_another_site_cannot_change_it(anna: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(anna)
    assert change(Api(client=client), OLD, NEW).status_code == 403
    assert User.objects.get().check_password(OLD)
