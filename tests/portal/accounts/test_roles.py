"""Custom roles are sets of verbs, and nobody gives or takes more than they hold."""

import itertools
from datetime import datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse

from kcover import audit
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import VERBS_OF, CustomRole, RoleBinding, User, Verb
from kcover_portal.accounts.services import invitations
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.codes import refused
from tests.portal.accounts.browsers import Browser, Clock, make_user

pytestmark = pytest.mark.django_db
DESK = ["read", "approve"]
STAFF = ["read", "administer"]


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


def signed_in(name: str) -> Browser:
    browser = Browser()
    browser.sign_in(name)
    return browser


def call(browser: Browser, method: str, path: str, **body: object) -> Any:
    return getattr(browser.client, method)(f"/api/v1/{path}", body, content_type="application/json")


def make_role(name: str, verbs: list[str], now: datetime) -> CustomRole:
    return services.make_role(name, verbs, giver=None, actor="command:root", now=now)


def test_each_built_in_role_contains_the_ones_before_it() -> None:
    sets = list(VERBS_OF.values())
    assert all(one < other for one, other in itertools.pairwise(sets))
    assert sets[-1] == set(Verb.values)


def test_a_custom_role_gives_its_verbs_and_no_others(east: Cluster, now: datetime) -> None:
    make_role("desk", DESK, now)
    anna = make_user("anna", now, "desk")
    assert queries.may(anna, "approve", east)
    assert not queries.may(anna, "repair", east)
    assert not queries.may(anna, "approver", east)  # the built-in role contains more


def test_setting_modes_does_not_include_the_right_to_resume(east: Cluster, now: datetime) -> None:
    Cluster.objects.update(mode="paused", resumes_as="enforce")
    make_role("tuner", ["read", "guard"], now)
    user = make_user("tim", now, "tuner")
    tim = signed_in("tim")
    assert call(tim, "post", "resume", cluster="east", reason="x").status_code == 403
    assert call(tim, "patch", "clusters/east", mode="enforce").json()["code"] == "role_required"
    page = tim.client.post(reverse("console:safety-mode", args=("east",)), {"mode": "enforce", "reason": "x"})
    assert page.status_code == 403
    assert Cluster.objects.get().mode == "paused"
    make_role("starter", ["read", "guard", "resume"], now)
    services.bind(user, "starter", actor="test", now=now)
    assert call(tim, "patch", "clusters/east", mode="enforce").status_code == 200


def test_roles_over_rest(clock: Clock) -> None:
    make_user("root", clock.now, "admin")
    root = signed_in("root")
    assert call(root, "post", "roles", name="desk", verbs=["approve", "read"]).json() == {
        "name": "desk",
        "verbs": DESK,
        "built_in": False,
    }
    assert call(root, "patch", "roles/desk", verbs=["read"]).json()["verbs"] == ["read"]
    assert [role["name"] for role in root.client.get("/api/v1/roles").json()][-2:] == ["admin", "desk"]
    services.bind(make_user("anna", clock.now), "desk", actor="t", now=clock.now)
    assert call(root, "delete", "roles/desk").json()["code"] == "role_in_use"
    services.unbind(User.objects.get(username="anna"), actor="t", now=clock.now)
    assert call(root, "delete", "roles/desk").status_code == 204
    entries = Entry.objects.filter(subject="role desk").order_by("pk")
    acts = [audit.from_entry(entry) for entry in entries]
    assert acts == [
        audit.RoleMade(role="desk", contains=("read", "approve")),
        audit.RoleChanged(role="desk", before=("read", "approve"), contains=("read",)),
        audit.RoleDeleted(role="desk", contains=("read",)),
    ]


@pytest.mark.parametrize(
    ("name", "verbs", "code"),
    [
        ("admin", ["read"], "role_taken"),
        ("a role", ["read"], "role_name_invalid"),
        ("desk", ["read", "fly"], "verb_unknown"),
        ("desk", ["approve"], "verb_missing"),
    ],
)
def test_an_invalid_role_is_refused(name: str, verbs: list[str], code: str, now: datetime) -> None:
    with refused(services.Refused, code):
        make_role(name, verbs, now)


def test_a_role_contains_no_more_than_its_maker_holds(clock: Clock) -> None:
    make_role("staff", STAFF, clock.now)
    make_user("stan", clock.now, "staff")
    stan = signed_in("stan")
    assert call(stan, "post", "roles", name="boss", verbs=["read", "approve"]).json()["code"] == "verbs_beyond_own"
    assert call(stan, "patch", "roles/staff", verbs=[*STAFF, "repair"]).json()["code"] == "verbs_beyond_own"
    assert call(stan, "post", "roles", name="reader", verbs=["read"]).status_code == 201


def test_people_cannot_grant_or_revoke_more_than_they_hold(clock: Clock) -> None:
    make_role("staff", STAFF, clock.now)
    make_user("stan", clock.now, "staff")
    anna, root = make_user("anna", clock.now), make_user("root", clock.now, "admin")
    stan = signed_in("stan").client
    assert stan.post(f"/access/users/{anna.pk}/role/", {"role": "operator"}).status_code == 422
    assert stan.post(f"/access/users/{root.pk}/role/", {"role": ""}).status_code == 422
    new = {"username": "eve", "password": "correct horse battery", "role": "admin"}
    assert stan.post("/access/users/new/", new).status_code == 422
    assert stan.post(f"/access/users/{root.pk}/password/", {"password": "correct horse battery"}).status_code == 422
    assert stan.post(f"/access/users/{root.pk}/disable/", {"reason": "x"}).status_code == 422
    invited, _ = invitations.invite_new("ida", role="admin", actor="command:root", now=clock.now)
    assert stan.post(reverse("console:user-invite"), {"username": "bob", "role": "admin"}).status_code == 422
    again = reverse("console:user-invite-again", args=(invited.user.pk,))
    assert stan.post(again, {"reason": "x"}).status_code == 422
    assert queries.may(User.objects.get(username="root"), "admin", None)
    assert not User.objects.filter(username="eve").exists()
    assert stan.post(f"/access/users/{anna.pk}/role/", {"role": "staff"}).status_code == 302


def test_a_role_in_a_pool_by_the_console(east: Cluster, clock: Clock) -> None:
    make_user("root", clock.now, "admin")
    anna = User.objects.create(username="anna")
    root = signed_in("root").client
    given = {"role": "operator", "cluster": "east", "pool": "red"}
    assert root.post(f"/access/users/{anna.pk}/role/", given).status_code == 302
    binding = RoleBinding.objects.get(user=anna)
    assert (binding.role, binding.cluster, binding.pool) == ("operator", east, "red")
    assert "Operator · east · red" in root.get("/access/").content.decode()
    no_cluster = root.post(f"/access/users/{anna.pk}/role/", {"role": "operator", "pool": "red"})
    assert no_cluster.status_code == 422


def test_bindings_of_single_sign_on_replace_each_other_and_none_by_hand(east: Cluster, now: datetime) -> None:
    anna = make_user("anna", now)
    groups = [services.Binding("operator", east, "red"), services.Binding("viewer", east)]
    for bindings in (groups, groups, groups[1:]):
        services.replace_bindings(anna, source="oidc", bindings=bindings, actor="oidc:corp", now=now)
    rows = anna.bindings.order_by("source").values_list("role", "cluster__name", "pool", "source")
    assert list(rows) == [("viewer", None, "", "hand"), ("viewer", "east", "", "oidc")]
    given = Entry.objects.filter(actor="oidc:corp")
    assert list(given.order_by("pk").values_list("verb", flat=True)) == ["role.given", "role.given", "role.taken"]
    with refused(services.Refused, "role_unknown"):
        services.replace_bindings(anna, source="oidc", bindings=[services.Binding("boss")], actor="oidc:corp", now=now)
    assert anna.bindings.count() == 2


def test_the_shell_makes_roles_and_gives_them(east: Cluster, now: datetime) -> None:
    anna = make_user("anna", now)
    for words in (
        ("create", "desk", "read", "approve"),
        ("change", "desk", "read", "close"),
        ("give", "anna", "desk", "--cluster", "east", "--pool", "red"),
    ):
        call_command("role", *words, stdout=StringIO())
    assert set(anna.bindings.values_list("role", "pool")) == {("viewer", ""), ("desk", "red")}
    out = StringIO()
    call_command("role", "list", stdout=out)
    assert "desk\tread close\n" in out.getvalue()
    call_command("role", "take", "anna", "--cluster", "east", "--pool", "red", stdout=StringIO())
    assert anna.bindings.count() == 1


@pytest.mark.parametrize("taken", ["ann\u0430", "Anna", "\uff41nna", "\u03b1nna", "\u00e0nna"])
def test_an_admin_makes_no_account_that_looks_like_another_one(clock: Clock, taken: str) -> None:
    make_user("anna", clock.now, "viewer")
    with refused(services.Refused, "user_name_alike"):
        services.make_user(taken, password="long-enough-1", role="admin", created_by="test", now=clock.now)
    with refused(services.Refused, "user_name_alike"):
        invitations.invite_new(taken, role="viewer", actor="user:root", now=clock.now)
    assert [user.username for user in User.objects.all()] == ["anna"]


@pytest.mark.parametrize(("name", "code"), [("System", "user_name_reserved"), ("anna", "user_name_taken")])
def test_names_of_parts_of_the_portal_are_no_accounts(clock: Clock, name: str, code: str) -> None:
    make_user("anna", clock.now, "viewer")
    with refused(services.Refused, code):
        invitations.invite_new(name, role="viewer", actor="user:root", now=clock.now)


@pytest.mark.parametrize("name", ["\u5f20\u4e09", "admin", "an.na", "\u0436\u0435\u043d\u044f"])
def test_other_names_are_accounts(clock: Clock, name: str) -> None:
    make_user("anna", clock.now, "viewer")
    assert invitations.invite_new(name, role="viewer", actor="user:root", now=clock.now)[0].user.username == name


SINK = {
    "name": "acme",
    "kind": "webhook",
    "address": "https://acme.example/x",
    "secret": "s" * 20,
    "topics": ["tickets"],
}


@pytest.mark.parametrize("desk", [False, True])
def test_only_the_repair_desk_makes_sinks_that_take_answers(clock: Clock, *, desk: bool) -> None:
    """Its secret signs what takes repairs further."""
    make_role("streams", ["read", "stream-audit", *(["handle-repairs"] if desk else [])], clock.now)
    make_user("tim", clock.now, "streams")
    tim = signed_in("tim")
    vendor = {"options": {"vendor": "ACME"}}
    assert call(tim, "post", "audit-sinks", **SINK, **vendor).status_code == (201 if desk else 403)
    if desk:
        services.bind(User.objects.get(username="tim"), "viewer", actor="test", now=clock.now)
        make_role("only", ["read", "stream-audit"], clock.now)
        services.bind(User.objects.get(username="tim"), "only", actor="test", now=clock.now)
        assert call(tim, "patch", "audit-sinks/acme", secret="t" * 20).status_code == 403
        return
    assert call(tim, "post", "audit-sinks", **SINK).status_code == 201
    assert call(tim, "patch", "audit-sinks/acme", **vendor).status_code == 403
    assert call(tim, "patch", "audit-sinks/acme", secret="t" * 20).status_code == 200
