"""Permissions by role and place; creation, lookup and revocation of tokens."""

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, Role, RoleBinding, User
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.codes import refused
from tests.portal.accounts.strongest_role import role_in

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def west(now: datetime) -> Cluster:
    return Cluster.objects.create(name="west", created_at=now)


def user(name: str, role: str, now: datetime, *, cluster: Cluster | None = None) -> User:
    return services.make_user(name, password=PASSWORD, role=role, cluster=cluster, created_by="test", now=now)


def token(kind: str, now: datetime, **more: object) -> tuple[ApiToken, str]:
    return services.make_token(kind, created_by="user:root", now=now, **more)


def names(who: queries.Principal, role: str = "viewer") -> list[str]:
    return [cluster.name for cluster in queries.clusters_of(who, role).order_by("name")]


@pytest.mark.parametrize("held", Role.values)
@pytest.mark.parametrize("asked", Role.values)
def test_a_role_includes_the_ones_before_it(held: str, asked: str, east: Cluster, now: datetime) -> None:
    who = user("anna", held, now)
    expected = Role.values.index(held) >= Role.values.index(asked)
    assert queries.may(who, asked, None) is expected
    assert queries.may(who, asked, east) is expected
    assert queries.may_somewhere(who, asked) is expected
    assert (names(who, asked) == ["east"]) is expected


def test_a_binding_to_one_cluster_ends_at_its_border(east: Cluster, west: Cluster, now: datetime) -> None:
    who = user("anna", "operator", now, cluster=east)
    assert queries.may(who, "operator", east)
    assert not queries.may(who, "viewer", west)
    assert not queries.may(who, "viewer", None)
    assert queries.may_somewhere(who, "operator")
    assert not queries.may_somewhere(who, "approver")
    assert names(who) == ["east"]


def test_the_strongest_binding_that_covers_a_cluster_counts(east: Cluster, west: Cluster, now: datetime) -> None:
    user("anna", "viewer", now)
    services.bind(User.objects.get(), "admin", cluster=east, actor="test", now=now)
    who = User.objects.get()
    assert queries.may(who, "admin", east)
    assert queries.may(who, "viewer", west)
    assert not queries.may(who, "operator", west)
    assert queries.may(who, "viewer", None)
    assert not queries.may(who, "operator", None)
    assert names(who) == ["east", "west"]
    assert names(who, "operator") == ["east"]


def test_anonymous_disabled_and_roleless_users_have_no_rights(east: Cluster, now: datetime) -> None:
    who = user("anna", "admin", now)
    who.is_active = False
    for one in (who, AnonymousUser(), User(username="new")):
        if one.pk is None and isinstance(one, User):
            one.save()
        assert not queries.may(one, "viewer", east)
        assert not queries.may_somewhere(one, "viewer")
        assert names(one) == []


def test_a_superuser_is_an_admin_everywhere(east: Cluster) -> None:
    who = User.objects.create(username="root", is_superuser=True)
    assert queries.may(who, "admin", None)
    assert queries.may(who, "admin", east)


@pytest.mark.parametrize(
    ("kind", "role"), [("viewer", "viewer"), ("operator", "operator"), ("decision", "operator"), ("agent", None)]
)
def test_each_kind_of_token_has_its_role(
    kind: str, role: str | None, east: Cluster, west: Cluster, now: datetime
) -> None:
    bound, _ = token(kind, now, cluster=east)
    assert role_in(bound, east) == role
    assert role_in(bound, west) is None
    assert role_in(bound, None) is None
    assert names(bound) == (["east"] if role else [])
    if kind != "agent":
        free, _ = token(kind, now)
        assert role_in(free, west) == role
        assert role_in(free, None) == role


def test_asking_costs_one_query_a_person_and_none_a_token(east: Cluster, now: datetime) -> None:
    user("anna", "operator", now, cluster=east)
    who, bound = User.objects.get(), token("viewer", now, cluster=east)[0]
    with CaptureQueriesContext(connection) as asked:
        for _ in range(3):
            queries.may(who, "viewer", east)
            queries.may_somewhere(who, "admin")
            queries.may(bound, "viewer", east)
    assert len(asked) == 1


def test_the_ledger_names_tokens_users_and_anonymous_actors(now: datetime) -> None:
    made, secret = token("decision", now)
    assert queries.actor(made) == f"token:decision {secret[:8]}"
    assert queries.actor(user("anna", "viewer", now)) == "user:anna"
    assert queries.actor(AnonymousUser()) == "nobody"


# --- tokens


@pytest.mark.parametrize(
    ("kind", "node", "prefix"),
    [
        ("agent", "", "kce_"),
        ("agent", "gpu-1", "kca_"),
        ("decision", "", "kcd_"),
        ("operator", "", "kco_"),
        ("viewer", "", "kcv_"),
    ],
)
def test_a_tokens_kind_can_be_read_off_it(kind: str, node: str, prefix: str, east: Cluster, now: datetime) -> None:
    made, secret = token(kind, now, cluster=east, node=node)
    assert secret.startswith(prefix)
    assert len(secret) == len(prefix) + 43  # 256 bits
    assert made.prefix == secret[:8]
    assert (made.kind, made.node, made.cluster) == (kind, node, east)


def test_only_a_digest_of_the_secret_is_kept(now: datetime) -> None:
    made, secret = token("viewer", now, name="wall")
    row = ApiToken.objects.filter(pk=made.pk).values().get()
    assert secret not in str(row)
    assert secret[8:] not in str(Entry.objects.values().get())
    assert row["digest"] == services.digest(secret)
    assert len(row["digest"]) == 64


def test_two_tokens_are_never_equal(now: datetime) -> None:
    assert len({token("viewer", now)[1] for _ in range(20)}) == 20


def test_making_a_token_is_in_the_ledger(east: Cluster, now: datetime) -> None:
    made, _ = token("agent", now, cluster=east, node="gpu-1", expires_at=now + timedelta(days=1))
    entry = Entry.objects.get()
    assert (entry.cluster, entry.verb, entry.subject, entry.node) == (
        "east",
        "token.created",
        f"token {made.prefix}",
        "gpu-1",
    )
    assert (entry.actor, entry.data["kind"]) == ("user:root", "agent")
    assert entry.data["expires_at"] == "2026-11-22T08:00:00+00:00"


def test_a_token_is_found_by_its_secret_only_while_it_is_in_force(now: datetime) -> None:
    made, secret = token("viewer", now, expires_at=now + timedelta(hours=1))
    assert services.find_token(secret, now=now) == made
    assert services.find_token(secret, now=now + timedelta(minutes=59)) == made
    assert services.find_token(secret, now=now + timedelta(hours=1)) is None
    assert services.find_token(secret[:-1], now=now) is None
    assert services.find_token("", now=now) is None
    services.revoke_token(made, actor="user:bo", now=now)
    assert services.find_token(secret, now=now) is None


def test_the_last_use_is_noted_at_most_once_a_minute(now: datetime) -> None:
    made, secret = token("viewer", now)
    services.find_token(secret, now=now)
    for seconds, noted in ((1, 0), (59, 0), (60, 60), (61, 60), (300, 300)):
        with CaptureQueriesContext(connection) as asked:
            services.find_token(secret, now=now + timedelta(seconds=seconds))
        made.refresh_from_db()
        assert made.last_used_at == now + timedelta(seconds=noted)
        assert len(asked) == (2 if noted == seconds else 1)


def test_withdrawing_twice_changes_and_records_nothing_more(east: Cluster, now: datetime) -> None:
    made, _ = token("viewer", now, cluster=east)
    services.revoke_token(made, actor="user:bo", now=now, reason="leaked")
    again = services.revoke_token(made, actor="user:cy", now=now + timedelta(hours=1))
    assert again.revoked_at == now
    entry = Entry.objects.get(verb="token.revoked")
    assert (entry.cluster, entry.actor, entry.data["reason"]) == ("east", "user:bo", "leaked")


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("robot", {}, "Unknown kind 'robot'. Use one of agent, decision, operator, viewer"),
        ("agent", {}, "An agent token requires a cluster"),
        ("viewer", {"node": "gpu-1"}, "Only agent tokens can be bound to a node, not kind viewer"),
        ("viewer", {"expires_at": "now"}, "The expiry is in the past"),
    ],
)
def test_parts_that_do_not_fit_are_refused(kind: str, fields: dict, message: str, now: datetime) -> None:
    fields = {key: now if value == "now" else value for key, value in fields.items()}
    with pytest.raises(services.Refused, match=message.replace("(", "\\(")):
        token(kind, now, **fields)
    assert ApiToken.objects.count() == 0


# --- people


def test_a_user_signs_in_with_the_password_and_has_the_role(east: Cluster, now: datetime) -> None:
    who = user("anna", "approver", now, cluster=east)
    assert who.check_password(PASSWORD)
    binding = RoleBinding.objects.get()
    assert (binding.user, binding.role, binding.cluster) == (who, "approver", east)
    entry = Entry.objects.get()
    assert (entry.cluster, entry.verb, entry.subject, entry.data) == (
        "east",
        "role.given",
        "user anna",
        {"user": "anna", "role": "approver"},
    )


@pytest.mark.parametrize(
    ("name", "password", "role", "code"),
    [
        ("anna", "short", "viewer", "password_too_short"),
        ("anna", "password123", "viewer", "password_too_common"),
        ("no spaces", PASSWORD, "viewer", "user_name_invalid"),
        ("", PASSWORD, "viewer", "user_name_invalid"),
        ("a" * 151, PASSWORD, "viewer", "text_too_long"),
        ("anna", PASSWORD, "boss", "role_unknown"),
    ],
)
def test_an_invalid_user_is_refused(name: str, password: str, role: str, code: str, now: datetime) -> None:
    with refused(services.Refused, code):
        services.make_user(name, password=password, role=role, created_by="t", now=now)
    assert User.objects.count() == 0


def test_a_taken_name_is_refused(now: datetime) -> None:
    user("anna", "viewer", now)
    with refused(services.Refused, "user_name_taken"):
        user("anna", "viewer", now)


def test_a_second_role_in_one_place_replaces_the_first(east: Cluster, now: datetime) -> None:
    who = user("anna", "viewer", now)
    services.bind(who, "admin", actor="t", now=now)
    services.bind(who, "operator", cluster=east, actor="t", now=now)
    assert sorted(who.bindings.values_list("role", "cluster__name")) == [("admin", None), ("operator", "east")]
    services.unbind(who, actor="t", now=now)
    assert list(who.bindings.values_list("role", flat=True)) == ["operator"]
    assert Entry.objects.filter(verb="role.taken", cluster="", data={"user": "anna", "role": "admin"}).count() == 1
    services.unbind(who, actor="t", now=now)
    assert Entry.objects.filter(verb="role.taken").count() == 1


def test_a_password_is_changed_unless_it_is_weak(now: datetime) -> None:
    who = user("anna", "viewer", now)
    services.set_password(who, "another good one", actor="t", now=now)
    assert User.objects.get().check_password("another good one")
    with pytest.raises(services.Refused):
        services.set_password(who, "x", actor="t", now=now)
    assert "another" not in str(list(Entry.objects.values()))
