"""The wallboard, and the token that opens it and nothing else."""

from datetime import datetime, timedelta
from http.cookies import SimpleCookie
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kcover_portal.accounts import queries, services as accounts
from kcover_portal.accounts.models import ApiToken, RoleBinding, User
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from tests.portal.api.conftest import add_node, add_story
from tests.portal.api.door import Door
from tests.portal.api.test_decision_doors import OPEN, doors
from tests.portal.console import pools
from tests.portal.console.pools import OURS, THEIRS
from tests.portal.console.test_pages import text
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


def wall_token(**fields: Any) -> tuple[ApiToken, str]:
    return accounts.make_token("wall", created_by="test", now=timezone.now(), **fields)


def screen(secret: str) -> Client:
    """A browser that opened the wall link."""
    client = Client()
    answer = client.post("/wall/", {"token": f"https://portal.example/wall/#{secret}"})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/wall/")
    return client


def test_a_link_opens_the_wall_and_its_cookie_goes_nowhere_else(world: World):
    world.fault()
    world.work()
    _, secret = wall_token(expires_at=timezone.now() + timedelta(hours=1))
    client = screen(secret)
    cookie = client.cookies["kcover_wall"]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == ("/wall/", True, "Strict")
    assert 3500 < int(cookie["max-age"]) <= 3600
    assert "sessionid" not in client.cookies
    page = client.get("/wall/")
    assert "gpu-1" in text(page)
    assert "no-store" in page.headers["Cache-Control"]
    part = client.get("/wall/", headers={"HX-Request": "true"})
    assert "<html" not in text(part)
    assert "gpu-1" in text(part)


def test_inv_11_a_wall_token_opens_no_other_door(world: World):
    """Every URL, with the token as a bearer token and as the cookie, wherever that is sent: as for a stranger."""
    add_story(world.node(), world.now)
    _, secret = wall_token()
    nobody = Client(raise_request_exception=False)
    wall = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {secret}"})
    let_in = []
    for name, path in doors():
        wall.cookies = SimpleCookie({"kcover_wall": secret, "sessionid": secret})
        read, written = wall.get(path).status_code, wall.post(path, {}, content_type="application/json").status_code
        refused = read >= 400 if name.startswith("api:") else read == nobody.get(path).status_code
        if not refused or (written < 300 and name not in OPEN):  # /wall/ itself is a form for a stranger: 200 as well
            let_in.append((name, read, written))
    assert let_in == []
    assert queries.verbs_of_kind("wall") == frozenset()


@pytest.mark.django_db(transaction=True)
def test_a_wall_token_is_no_agent():
    assert Door(wall_token()[1]).call("POST", "reports", b"{}").status in (401, 403)


def test_the_wall_closes_with_its_token_its_owner_and_the_owners_role(world: World):
    now = timezone.now()
    owner = accounts.make_user("ada", password=pools.PASSWORD, role="admin", created_by="test", now=now)
    token, secret = wall_token(owner=owner)
    client = screen(secret)

    def status() -> int:
        client.cookies["kcover_wall"] = secret
        gone = client.get("/wall/", headers={"HX-Request": "true"})
        client.cookies["kcover_wall"] = secret
        page = client.get("/wall/")
        assert (gone.headers.get("HX-Redirect") == "/wall/") == (page.status_code == 403)
        return page.status_code

    assert status() == 200
    User.objects.update(is_active=False)
    assert status() == 403
    User.objects.update(is_active=True)
    assert status() == 200
    RoleBinding.objects.all().delete()
    assert status() == 403, "an empty scope must not read like a healthy fleet"
    RoleBinding.objects.create(user=owner, role="viewer")
    assert status() == 200
    ApiToken.objects.update(expires_at=now)
    assert status() == 403
    ApiToken.objects.update(expires_at=None)
    accounts.revoke_token(token, actor="user:ada", now=now)
    assert status() == 403
    assert client.cookies["kcover_wall"].value == ""


@pytest.mark.parametrize("kind", ["viewer", "operator"])
def test_other_tokens_and_networks_cannot_open_a_wall(world: World, kind: str):
    _, secret = accounts.make_token(kind, created_by="test", now=timezone.now())
    _, elsewhere = wall_token(networks=["192.0.2.0/24"])
    client = Client()
    for given in (secret, elsewhere, "nonsense", ""):
        assert client.post("/wall/", {"token": given}).status_code == 403
        client.cookies["kcover_wall"] = given
        assert client.get("/wall/").status_code == 403
    assert Client(enforce_csrf_checks=True).post("/wall/", {"token": secret}).status_code == 403


def test_a_wall_shows_what_its_owner_can_see(now: datetime):
    two = pools.make(now)
    vera, signed_in = pools.bound("vera", "viewer", two.cluster, "red", now)
    for client in (
        signed_in,
        screen(wall_token(owner=vera)[1]),
        screen(wall_token(owner=vera, cluster=two.cluster)[1]),
    ):
        shown = text(client.get("/wall/"))
        assert OURS in shown
        assert THEIRS not in shown
    other = Cluster.objects.create(name="other", created_at=now)
    assert OURS not in text(screen(wall_token(cluster=other)[1]).get("/wall/"))
    token, _ = wall_token(owner=vera)
    assert not queries.may_somewhere(token, "viewer")
    assert queries.scope(token).is_empty


def test_the_wall_counts_all_and_names_the_worst_in_the_same_statements(person, world: World):
    client = person("viewer")
    for already, number in ((0, 3), (3, 10)):
        for one in range(already, number):
            node = add_node(world.cluster, f"gpu-2{one}", world.now)
            fault = {"kind": "xid", "code": str(60 + one), "severity": "fatal", "count": 1}
            Incident.objects.create(cluster=world.cluster, node=node, opened_at=world.now, last_at=world.now, **fault)
        with CaptureQueriesContext(connection) as asked:
            page = text(client.get("/wall/", headers={"HX-Request": "true"}))
        assert len(asked) == 32
        assert page.count("wall-why") == min(number, 8)
        assert f"<b>{number}</b>" in page
        assert text(client.get("/")).count("need-head") == number
    for state in ("attention", "faulty", "approval", "held", "healing", "healthy"):
        assert f'data-state="{state}"' in page


def test_a_wall_of_one_cluster_or_pool_shows_that_part_and_never_more(now: datetime):
    two = pools.make(now)
    other = Cluster.objects.create(name="other", created_at=now)
    name = two.cluster.name
    _, wide = pools.bound("ada", "admin", two.cluster, "", now)
    vera, narrow = pools.bound("vera", "viewer", two.cluster, "red", now)
    token = screen(wall_token(owner=vera)[1])
    for client in (wide, narrow, token):
        page = client.get(f"/wall/?cluster={name}&pool=red")
        assert page.context["place"] == f"{name} / red"
        shown = text(page)
        assert OURS in shown
        assert THEIRS not in shown
        assert f'hx-get="/wall/?cluster={name}&amp;pool=red"' in shown
        for elsewhere in (f"cluster={other.name}", "cluster=none", f"cluster={name}&pool=none", "pool=red", "rack=A"):
            assert client.get(f"/wall/?{elsewhere}").status_code == 404
    assert THEIRS in text(wide.get(f"/wall/?cluster={name}"))
    assert THEIRS not in text(narrow.get(f"/wall/?cluster={name}"))
    for client in (narrow, token):
        assert client.get(f"/wall/?cluster={name}&pool=blue-of-theirs").status_code == 404
    assert narrow.post("/account/home/", {"page": f"/wall/?cluster={name}&pool=red"}).url.startswith("/wall/?cluster=")
    assert narrow.post("/account/home/", {"page": f"/wall/?cluster={name}&pool=blue-of-theirs"}).url == "/account/"
