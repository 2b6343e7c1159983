"""Custom roles, roles of groups and tokens on the page Access: what admins can do, and what others cannot."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover import audit
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, CustomRole, GroupMapping, User
from kcover_portal.accounts.services import oidc
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry

DOORS = ("roles/new/", "roles/night/change/", "roles/night/delete/", "groups/new/", "groups/1/remove/")


@pytest.fixture
def east(db: None, now: Any) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def admin(person: Any, east: Cluster) -> Client:
    return person("admin", name="anna")


def recorded(act: type[audit.Act]) -> Any:
    return audit.from_entry(Entry.objects.get(verb=act.VERB))


@pytest.mark.parametrize("door", DOORS)
def test_only_admins_of_all_clusters_open_the_forms(person: Any, east: Cluster, door: str) -> None:
    for client in (person("approver"), person("admin", cluster=east)):
        assert client.get(f"/access/{door}").status_code == 403
        assert client.post(f"/access/{door}", {}).status_code == 403


def test_an_admin_of_one_cluster_sees_neither_roles_nor_groups(person: Any, east: Cluster) -> None:
    shown = person("admin", cluster=east).get("/access/").content.decode()
    assert "/access/roles/" not in shown
    assert "/access/groups/" not in shown


def test_a_custom_role_is_created_changed_and_deleted(admin: Client) -> None:
    admin.post("/access/roles/new/", {"name": "night", "verbs": ["read", "pause"]})
    assert CustomRole.objects.get().verbs == ["read", "pause"]
    assert recorded(audit.RoleMade).contains == ("read", "pause")
    assert "/access/roles/night/delete/" in admin.get("/access/").content.decode()
    admin.post("/access/roles/night/change/", {"verbs": ["read", "approve"]})
    assert recorded(audit.RoleChanged).contains == ("read", "approve")
    assert admin.post("/access/roles/night/delete/", {}).status_code == 302
    assert not CustomRole.objects.exists()
    assert recorded(audit.RoleDeleted).role == "night"


@pytest.mark.parametrize(
    "sent",
    [
        {"name": "viewer", "verbs": ["read"]},
        {"name": "a b", "verbs": ["read"]},
        {"name": "n", "verbs": ["pause"]},
        {"name": "n"},
    ],
)
def test_an_invalid_role_is_refused(admin: Client, sent: dict[str, Any]) -> None:
    assert admin.post("/access/roles/new/", sent).status_code == 422
    assert not CustomRole.objects.exists()


def test_a_role_in_use_is_not_deleted(admin: Client, now: Any) -> None:
    services.make_role("night", ["read"], giver=None, actor="test", now=now)
    oidc.map_group("ops", "night", actor="test", now=now)
    assert "/access/roles/night/delete/" not in admin.get("/access/").content.decode()
    assert admin.post("/access/roles/night/delete/", {}).status_code == 422
    assert CustomRole.objects.exists()


def test_a_group_gets_a_role_and_loses_it(admin: Client, east: Cluster) -> None:
    sent = {"group": "gpu ops", "role": "operator", "cluster": "east", "pool": "a", "reason": "on call"}
    assert admin.post("/access/groups/new/", sent).status_code == 302
    mapping = GroupMapping.objects.get()
    assert (mapping.group, mapping.role, mapping.cluster, mapping.pool) == ("gpu ops", "operator", east, "a")
    assert recorded(audit.GroupMapped).reason == "on call"
    assert "gpu ops" in admin.get("/access/").content.decode()
    assert admin.post("/access/groups/new/", {"group": "x", "role": "viewer", "pool": "a"}).status_code == 422
    admin.post(f"/access/groups/{mapping.pk}/remove/", {"reason": "left"})
    assert not GroupMapping.objects.exists()
    assert recorded(audit.GroupUnmapped).reason == "left"


def test_people_cannot_give_a_group_more_than_they_hold(person: Any, east: Cluster, now: Any) -> None:
    services.make_role("people", ["read", "administer"], giver=None, actor="test", now=now)
    client = person("people")
    assert client.post("/access/groups/new/", {"group": "x", "role": "approver"}).status_code == 422
    assert not GroupMapping.objects.exists()
    assert client.post("/access/roles/new/", {"name": "n", "verbs": ["read", "approve"]}).status_code == 422
    mapping = oidc.map_group("boss", "admin", actor="test", now=now)
    assert client.post(f"/access/groups/{mapping.pk}/remove/", {"reason": "x"}).status_code == 422
    assert GroupMapping.objects.exists()


def test_the_dialog_narrows_a_token(admin: Client, east: Cluster) -> None:
    sent = {
        "kind": "operator",
        "name": "ci",
        "verbs": ["pause", "read"],
        "scopes": ["override"],
        "networks": "10.0.0.1",
    }
    assert admin.post("/access/tokens/new/", sent).status_code == 200
    token = ApiToken.objects.get()
    assert (token.verbs, token.scopes, token.networks) == (["pause", "read"], ["override"], ["10.0.0.1/32"])
    assert admin.post("/access/tokens/new/", {"kind": "viewer", "scopes": ["override"]}).status_code == 422


def rotated(client: Client, token: ApiToken, overlap: int, page: str = "") -> str:
    shown = client.post(f"/access/tokens/{token.pk}/rotate/{page}", {"overlap": overlap}).content.decode()
    (secret,) = set(re.findall(r"kc\w_[\w-]{20,}", shown))
    return str(secret)


def test_a_rotated_token_overlaps_with_the_new_one(admin: Client, now: Any) -> None:
    anna, then = User.objects.get(username="anna"), timezone.now()
    token, old = services.make_token("operator", verbs=["read"], owner=anna, created_by="user:anna", now=then)
    new = rotated(admin, token, 3600)
    token.refresh_from_db()
    assert token.replaced_by is not None
    assert token.replaced_by.verbs == ["read"]
    soon, later = timezone.now(), timezone.now() + timedelta(hours=2)
    assert [services.find_token(secret, now=soon) is not None for secret in (old, new)] == [True, True]
    assert [services.find_token(secret, now=later) is not None for secret in (old, new)] == [False, True]
    assert recorded(audit.TokenRotated).successor == token.replaced_by.prefix
    page = admin.get("/access/").content.decode()
    assert new not in page
    assert f"/access/tokens/{token.pk}/rotate/" not in page
    assert admin.post(f"/access/tokens/{token.pk}/rotate/", {"overlap": 0}).status_code == 422


def test_only_the_owner_rotates(admin: Client, person: Any, now: Any) -> None:
    li = person("operator", name="li")
    token, _ = services.make_token("viewer", owner=User.objects.get(username="li"), created_by="user:li", now=now)
    assert f"{token.pk}/rotate/" not in admin.get("/access/").content.decode()
    assert admin.post(f"/access/tokens/{token.pk}/rotate/", {"overlap": 0}).status_code == 422
    assert f"{token.pk}/rotate/" in li.get("/account/").content.decode()
    assert rotated(li, token, 0, "?account=1")
    assert person("operator").post(f"/access/tokens/{token.pk}/rotate/", {"overlap": 0}).status_code == 404
    assert queries.may_somewhere(token, "viewer")
