"""Saved views over REST: the same owners, shares and bounds as on the pages."""

import pytest
from django.contrib.auth import get_user_model

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import SavedView
from kcover_portal.accounts.services import saved_views
from kcover_portal.ledger.models import Entry
from tests.portal.api.conftest import Api

pytestmark = pytest.mark.django_db
RED = {"listing": "nodes", "name": "Red ones", "query": "?sort=-gpus&pool=red"}
QUERY = "pool=red&sort=-gpus"


@pytest.fixture
def api(now):
    """``api("operator")``: a token of that kind, of a person with that role, who is signed in as well."""

    def made(role: str, *, kind: str = "operator") -> tuple[Api, Api]:
        name = f"{role}-{get_user_model().objects.count()}"
        user = accounts.make_user(name, password="long-enough-1", role=role, created_by="test", now=now)
        expires_at = accounts.default_expiry(kind, now=now)
        _, secret = accounts.make_token(kind, owner=user, created_by="test", expires_at=expires_at, now=now)
        signed_in = Api()
        signed_in.client.force_login(user)
        return Api(secret), signed_in

    return made


def names(caller: Api, query: str = "") -> list[tuple[str, bool, bool]]:
    rows = caller.get(f"views{query}").json()["results"]
    return sorted((row["name"], row["own"], row["opens_first"]) for row in rows)


def test_a_view_is_saved_listed_changed_and_deleted_by_its_owner_only(api) -> None:
    token, omar = api("operator")
    dry = token.call("post", "views?dry_run=true", RED)
    assert (dry.status_code, dry.json()["query"], SavedView.objects.count()) == (200, QUERY, 0)
    first = token.call("post", "views", RED, Idempotency_Key="k")
    again = token.call("post", "views", RED, Idempotency_Key="k")
    assert (first.status_code, first.json()) == (201, again.json())
    key = first.json()["id"]
    assert omar.get("views").json()["results"] == [first.json()]
    assert token.call("post", "views?dry_run=true", RED).json()["code"] == "view_name_taken"
    changed = omar.call("patch", f"views/{key}", {"name": "Mine", "opens_first": True})
    assert (changed.status_code, changed.json()["name"], changed.json()["query"]) == (200, "Mine", QUERY)
    assert omar.client.get("/nodes/").url == f"/nodes/?{QUERY}"
    other, _ = api("operator")
    assert names(other) == []
    for method, body in (("get", None), ("patch", {"name": "x"}), ("delete", None)):
        assert other.call(method, f"views/{key}", body).status_code == 404
    assert names(token, "?listing=rescues") == []
    assert token.call("delete", f"views/{key}").status_code == 204
    assert not SavedView.objects.exists()
    assert not Entry.objects.filter(verb__startswith="view.").exists()


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"query": "bogus=1"}, 422, "view_parameters"),
        ({"query": "status=no-such"}, 422, "view_parameters"),
        ({"listing": "revisions"}, 422, "view_list_unknown"),
        ({"query": "q=" + "x" * saved_views.MAX_QUERY}, 400, "invalid"),
        ({"owner": "root"}, 400, "invalid"),
        ({"name": ""}, 400, "invalid"),
    ],
)
def test_an_invalid_view_is_refused(change, status: int, code: str, api) -> None:
    answer = api("admin")[0].call("post", "views", {**RED, **change})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert not SavedView.objects.exists()


def test_sharing_needs_the_role_everywhere_of_person_and_token_and_admins_withdraw(api) -> None:
    token, omar = api("operator")
    reader, vera = api("viewer", kind="viewer")
    assert vera.call("post", "views", {**RED, "shared": True}).status_code == 403
    assert vera.call("post", "views", RED).status_code == 201
    assert reader.call("post", "views", {**RED, "name": "y"}).status_code == 403  # the token may only read
    shared = token.call("post", "views", {**RED, "name": "Ours", "shared": True, "opens_first": True}).json()
    assert names(vera) == [("Ours", False, False), ("Red ones", True, False)]
    assert names(reader, "?shared=true") == [("Ours", False, False)]
    assert vera.call("patch", f"views/{shared['id']}", {"shared": False}).status_code == 404
    assert omar.call("post", f"views/{shared['id']}/withdraw").status_code == 403
    _, admin = api("admin")
    assert admin.call("post", f"views/{shared['id']}/withdraw").json()["shared"] is False
    assert admin.call("post", f"views/{shared['id']}/withdraw").status_code == 404
    assert names(vera) == [("Red ones", True, False)]
    verbs = Entry.objects.filter(verb__startswith="view.").order_by("pk").values_list("verb", flat=True)
    assert list(verbs) == ["view.shared", "view.withdrawn"]


def test_a_list_opens_with_the_shared_view_of_somebody_else(api) -> None:
    _, omar = api("operator")
    key = omar.call("post", "views", {**RED, "shared": True, "opens_first": True}).json()["id"]
    _, vera = api("viewer", kind="operator")
    assert names(vera) == [("Red ones", False, False)]
    assert vera.call("patch", f"views/{key}", {"opens_first": True}).json()["opens_first"] is True
    assert names(vera) == [("Red ones", False, True)]
    assert names(omar) == [("Red ones", True, True)]
    assert vera.client.get("/nodes/").url == f"/nodes/?{QUERY}"
    for body in ({"name": "x"}, {"name": "x", "opens_first": False}, {"shared": False}, {}):
        assert vera.call("patch", f"views/{key}", body).status_code == 404, body
    assert vera.call("patch", f"views/{key}", {"opens_first": False}).json()["opens_first"] is False
    assert names(omar) == [("Red ones", True, True)]
    omar.call("patch", f"views/{key}", {"shared": False})
    assert vera.call("patch", f"views/{key}", {"opens_first": True}).status_code == 404
