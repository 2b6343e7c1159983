"""Access and System: who may open them, what they show, what they do."""

import html
import re
from datetime import timedelta

import pytest
from django.utils import timezone

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.accounts.queries import Scope
from kcover_portal.console.reads import system, trends
from kcover_portal.fleet.models import Agent, Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.shared_reads import due_work
from tests.portal.accounts.strongest_role import role_in
from tests.portal.console.conftest import PASSWORD
from tests.portal.rescue.world import World

NEW = "a-password-for-li-1"


def text(response) -> str:
    return response.content.decode()


# --------------------------------------------------------------------------------------------------------------- access


@pytest.mark.parametrize("path", ["/access/", "/access/tokens/new/", "/access/users/new/"])
@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_access_is_for_admins(person, db: None, path: str, role: str):
    client = person(role)
    assert client.get(path).status_code == 403
    assert "/access/" not in text(client.get("/"))


def test_a_token_is_shown_once_and_works(person, world: World):
    client = person("admin", name="anna")
    made = text(
        client.post("/access/tokens/new/", {"kind": "viewer", "name": "grafana", "cluster": "c1", "days": "30"})
    )
    (secret,) = set(re.findall(r"kcv_[\w-]{20,}", made))
    token = services.find_token(secret, now=timezone.now())
    assert token is not None
    assert (token.name, token.cluster, token.created_by) == ("grafana", world.cluster, "user:anna")
    page = text(client.get("/access/"))
    assert token.prefix in page
    assert secret not in page
    assert not Entry.objects.filter(data__icontains=secret).exists()


def test_a_token_is_withdrawn_with_a_reason(person, world: World):
    token, _secret = services.make_token("viewer", created_by="t", now=world.now)
    client = person("admin")
    address = f"/access/tokens/{token.pk}/withdraw/"
    assert client.post(address, {"reason": ""}).status_code == 422
    assert client.post(address, {"reason": "leaked"}).status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert Entry.objects.get(verb="token.revoked").data["reason"] == "leaked"


def test_a_token_form_that_lacks_a_cluster_is_refused_with_a_reason(person, world: World):
    response = person("admin").post("/access/tokens/new/", {"kind": "agent", "name": "x"})
    assert response.status_code == 422
    assert "An agent token requires a cluster." in text(response)
    assert not ApiToken.objects.exists()


def test_an_admin_of_one_cluster_stays_there(person, world: World):
    other = Cluster.objects.create(name="other", created_at=world.now)
    services.make_token("viewer", cluster=world.cluster, name="theirs", created_by="t", now=world.now)
    token, _ = services.make_token("viewer", name="everywhere", created_by="t", now=world.now)
    client = person("admin", cluster=other)
    page = text(client.get("/access/"))
    assert "theirs" not in page
    assert "New user" not in page
    assert client.get(f"/access/tokens/{token.pk}/withdraw/").status_code == 404
    assert client.post("/access/tokens/new/", {"kind": "viewer", "cluster": "c1"}).status_code == 422
    assert client.post("/access/tokens/new/", {"kind": "viewer"}).status_code == 422
    assert client.get("/access/users/new/").status_code == 403
    assert client.post("/access/tokens/new/", {"kind": "viewer", "cluster": "other"}).status_code == 200


def test_a_user_is_made_with_a_role_in_one_cluster(person, world: World):
    client = person("admin")
    weak = client.post("/access/users/new/", {"username": "li", "password": "short", "role": "operator"})
    assert weak.status_code == 422
    given = {"username": "li", "password": NEW, "role": "operator", "cluster": "c1"}
    assert client.post("/access/users/new/", given).status_code == 302
    li = User.objects.get(username="li")
    assert queries.may(li, "operator", world.cluster)
    assert not queries.may(li, "viewer", None)
    assert "Operator · c1" in text(client.get("/access/"))


def test_a_role_is_given_and_taken_but_never_ones_own(person, world: World):
    client = person("admin", name="anna")
    li = services.make_user("li", password=PASSWORD, role="viewer", created_by="t", now=world.now)
    address = f"/access/users/{li.pk}/role/"
    client.post(address, {"role": "approver", "cluster": "c1"})
    client.post(address, {"role": ""})
    assert role_in(User.objects.get(pk=li.pk), world.cluster) == "approver"
    assert role_in(User.objects.get(pk=li.pk), None) is None
    own = client.post(f"/access/users/{User.objects.get(username='anna').pk}/role/", {"role": ""})
    assert own.status_code == 422
    assert "You cannot change your own role" in text(own)


def test_a_password_is_set(person, world: World):
    li = services.make_user("li", password=PASSWORD, role="viewer", created_by="t", now=world.now)
    assert person("admin").post(f"/access/users/{li.pk}/password/", {"password": NEW}).status_code == 302
    li.refresh_from_db()
    assert li.check_password(NEW)


# --------------------------------------------------------------------------------------------------------------- system


def test_agents_are_counted_by_the_age_of_their_last_report(world: World):
    for index in range(2, 6):
        world.kube.add_node(f"gpu-{index}", gpus=8)
    world.sync()
    for index, (seconds, skew) in enumerate([(0, 0.0), (90, 0.0), (121, 9.0), (10, -7.0)], start=1):
        Agent.objects.create(
            node=world.node(f"gpu-{index}"),
            seen_at=world.now - timedelta(seconds=seconds),
            boot_id="b",
            boot_seen_at=world.now,
            version="1.0" if index < 3 else "1.1",
            skew=skew,
        )
    found = system.agents([world.cluster], now=world.now)
    assert (found.on_time, found.late, found.silent, found.never) == (2, 1, 1, 1)
    assert found.versions == [("1.0", 2), ("1.1", 2)]
    assert [one.node.name for one in found.skewed] == ["gpu-3", "gpu-4"]


def test_work_that_waits_for_a_worker_is_counted(world: World):
    world.fault(95)
    found = due_work.of([world.cluster], now=world.now)
    assert (found.rescues, found.faults, found.oldest) == (0, 1, world.now)


def test_the_system_page_shows_problems(person, world: World):
    page = text(person("viewer").get("/system/"))
    assert "never ran; check that a worker is running" in page
    assert "Problem" in page
    assert "never connected" in page


# --------------------------------------------------------------------------------------------------------------- trends


def incident(world: World, code: str, *, hours: float, minutes: float | None, is_user_fault: bool = False) -> None:
    opened = world.now - timedelta(hours=hours)
    Incident.objects.create(
        cluster=world.cluster,
        node=world.node(),
        kind="xid",
        code=code,
        is_user_fault=is_user_fault,
        state="open" if minutes is None else "closed",
        opened_at=opened,
        last_at=opened,
        closed_at=None if minutes is None else opened + timedelta(minutes=minutes),
    )


def test_the_recovery_time_is_compared_with_the_week_before(world: World):
    incident(world, "62", hours=5, minutes=4)
    incident(world, "62", hours=50, minutes=8)
    incident(world, "31", hours=50, minutes=500, is_user_fault=True)
    incident(world, "48", hours=200, minutes=12)
    incident(world, "48", hours=400, minutes=900)
    incident(world, "79", hours=1, minutes=None)
    found = trends.recovery(Scope.of(world.cluster), now=world.now)
    assert (found.last, found.before) == (timedelta(minutes=6), timedelta(minutes=12))
    assert (found.faults, found.faults_before, found.change) == (2, 1, -50)


def test_without_faults_there_is_no_figure(world: World):
    found = trends.recovery(Scope.of(world.cluster), now=world.now)
    assert (found.last, found.before, found.change) == (None, None, None)
    assert trends.faults(Scope.of(world.cluster), now=world.now).series == []


def test_new_faults_are_counted_by_code_and_time(world: World):
    for index, code in enumerate(["62", "62", "31", "48", "64", "79", "95", "13"]):
        incident(world, code, hours=1 + index / 10, minutes=1)
    incident(world, "62", hours=30, minutes=1)
    incident(world, "62", hours=170, minutes=1)
    found = trends.faults(Scope.of(world.cluster), now=world.now)
    assert len(found.starts) == 28
    names = [name for name, _counts in found.series]
    assert names[0] == "Xid 62"
    assert (len(names), names[-1]) == (6, "others")
    assert sum(found.series[0][1]) == 3
    assert sum(sum(counts) for _name, counts in found.series) == 9
    assert len(found.rows) == 2
    assert [sum(row) for _moment, row in found.rows] == [8, 1]


@pytest.mark.parametrize(("span", "bars", "number"), [("24h", 24, 1), ("30day", 30, 2), ("365day", 26, 3)])
def test_a_trend_reaches_back_hours_to_months(world: World, person, span: str, bars: int, number: int):
    for hours in (5, 24 * 20, 24 * 200):
        incident(world, "62", hours=hours, minutes=4)
    found = trends.faults(Scope.of(world.cluster), now=world.now, span=span)
    assert (len(found.starts), sum(found.series[0][1])) == (bars, number)
    assert trends.recovery(Scope.of(world.cluster), now=world.now, span=span).faults == number
    page = person("viewer").get(f"/trends/?span={span}")
    assert (page.context["span"], len(page.context["trend"].starts)) == (span, bars)


def test_the_week_is_a_fragment_of_its_own(person, world: World):
    incident(world, "62", hours=5, minutes=4)
    page = text(person("viewer").get("/trends/?span=colour"))
    assert "<xid-trend" in page
    assert "<html" not in page
    assert 'hx-get="/trends/"' in text(person("viewer").get("/"))


# ------------------------------------------------------------------------------------------ occurrences and decisions


def test_occurrences_and_decisions_are_listed(person, world: World):
    world.fault(95)
    world.work()
    client = person("viewer")
    assert "Xid 95" in text(client.get("/occurrences/"))
    assert "No rule covers Xid 95." in text(client.get("/decisions/"))
    assert "No occurrences match these filters" in text(client.get("/occurrences/?q=zzz"))
    assert "No decisions match these filters" in text(client.get("/decisions/?q=zzz"))


# -------------------------------------------------------------------------------------------------------------- palette


def test_the_palette_offers_the_allowed_acts(person, world: World):
    viewer, admin = text(person("viewer").get("/")), text(person("admin").get("/"))
    for act in ("pause", "maintenance/new", "checks/validations/new", "checks/new"):
        assert f'hx-get="/{act}/"' not in viewer, act
        assert f'hx-get="/{act}/"' in admin, act
    assert 'href="/access/"' in admin


def test_an_agents_token_ends_with_commands_and_waits_for_the_first_report(person, world: World):
    client = person("admin")
    made = html.unescape(text(client.post("/access/tokens/new/", {"kind": "agent", "cluster": "c1", "name": "new"})))
    token = ApiToken.objects.get()
    (secret,) = set(re.findall(r"kce_[\w-]{20,}", made))
    assert f"KCOVER_AGENT_TOKEN={secret} > /etc/kcover/agent.env" in made
    assert f"NODE_NAME=$(hostname) KCOVER_AGENT_URL=http://testserver KCOVER_AGENT_TOKEN={secret}" in made
    assert f"--from-literal=token={secret}\n" in made
    assert "--set agent.url=http://testserver --set cluster=c1 --set agent.tokenSecret=kcover-agent-token" in made
    address = f"/access/tokens/{token.pk}/reports/"
    assert f'hx-get="{address}"' in made
    assert client.get(address).status_code == 204
    Agent.objects.create(node=world.node(), seen_at=token.created_at, boot_id="b", boot_seen_at=token.created_at)
    assert client.get(address).status_code == 204  # it reported with another credential
    ApiToken.objects.create(
        kind="agent", cluster=world.cluster, node="gpu-1", parent=token, digest="d", prefix="p", created_at=world.now
    )
    found = client.get(address)
    assert found.status_code == 286
    assert 'href="/nodes/c1/gpu-1/"' in text(found)
    late = world.cluster.nodes.create(name="gpu-2", gpus=8, in_cluster=True, created_at=world.now)
    found = client.get(address)
    assert (found.status_code, found.context["enrolment"].reported, found.context["enrolment"].expected) == (200, 1, 2)
    Agent.objects.create(node=late, seen_at=token.created_at, boot_id="b", boot_seen_at=token.created_at)
    ApiToken.objects.create(
        kind="agent", cluster=world.cluster, node="gpu-2", parent=token, digest="e", prefix="q", created_at=world.now
    )
    assert client.get(address).status_code == 286
    other = Cluster.objects.create(name="other", created_at=world.now)
    assert person("admin", cluster=other).get(address).status_code == 404
    assert person("approver").get(address).status_code == 403


def test_a_token_of_a_node_has_no_command_for_a_cluster(person, world: World):
    page = {"kind": "agent", "cluster": "c1", "node": "gpu-1"}
    made = html.unescape(text(person("admin").post("/access/tokens/new/", page)))
    assert "NODE_NAME=gpu-1 > /etc/kcover/agent.env" in made
    assert "helm install" not in made
    assert "systemctl" not in text(person("admin").post("/access/tokens/new/", {"kind": "viewer"}))
