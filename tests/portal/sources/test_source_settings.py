"""Sources as rows: permissions, refusals and audit log entries."""

import io
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from kcover.sources import settings
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import registry
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import connections, port
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import services as policies
from kcover_portal.sources import services
from kcover_portal.sources.models import Source, TakenEvent
from tests.kube_fake import FakeCluster
from tests.portal.sources.conftest import Sender, add, notification

SECRET = "glsa_a-secret-that-nobody-reads"


class Admin:
    """A signed-in person with a role in a cluster."""

    def __init__(self, role: str, cluster: Cluster | None, now: datetime) -> None:
        user = accounts.make_user(
            f"{role}-1", password="correct horse battery", role=role, cluster=cluster, created_by="test", now=now
        )
        self.client = Client()
        self.client.force_login(user)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        content = {} if method == "get" else {"data": body or {}, "content_type": "application/json"}
        return getattr(self.client, method)(f"/api/v1/sources{path}", **content)


@pytest.fixture
def admin(east: Cluster, now: datetime) -> Admin:
    return Admin("admin", east, now)


def body(**more: Any) -> dict[str, Any]:
    given = {"name": "loki-a", "kind": "loki", "cluster": "east", "url": "http://loki.loki:3100", "token": SECRET}
    return {**given, **more}


def test_an_admin_adds_changes_and_removes_a_source(admin: Admin) -> None:
    made = admin.call("post", "", body(settings={"lateness": 90, "pod_namespaces": ["ml"]}))
    assert made.status_code == 201, made.content
    assert made.json()["has_token"] is True
    assert "token" not in made.json()
    changed = admin.call("patch", "/loki-a", {"settings": {"lateness": None, "tenant": "a"}, "enabled": False})
    assert changed.json()["settings"] == {"pod_namespaces": ["ml"], "tenant": "a"}
    assert changed.json()["enabled"] is False
    assert admin.call("get", "/loki-a").json() == changed.json()
    assert admin.call("delete", "/loki-a").status_code == 204
    entries = Entry.objects.filter(verb__startswith="source.").order_by("pk")
    assert [(entry.verb, entry.subject, entry.cluster) for entry in entries] == [
        ("source.created", "source loki-a", "east"),
        ("source.changed", "source loki-a", "east"),
        ("source.deleted", "source loki-a", "east"),
    ]
    assert SECRET not in str(list(entries.values()))


POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: move}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - {name: cordon}
        - name: drain
          attribute: {checkpointWait: 10min, checkpointQuery: 'max(saved{job="{job}"})', checkpointSource: metrics}
"""


def test_a_source_that_a_rule_names_stays(admin: Admin, now: datetime) -> None:
    admin.call("post", "", body(name="metrics", kind="prometheus", url="http://prometheus:9090", token=""))
    admin.call("post", "", body())
    policies.apply(POLICY, author="test", reason="", now=now)
    refused = admin.call("delete", "/metrics")
    assert (refused.status_code, refused.json()["code"]) == (409, "source_in_use")
    assert refused.json()["params"] == {"source": "metrics", "rules": "move#1"}
    page = admin.client.post("/sources/metrics/delete/", {"reason": "x"})
    assert (page.status_code, "move#1" in page.content.decode()) == (422, True)
    with pytest.raises(CommandError, match="move#1"):
        call_command("source", "remove", "metrics")
    assert admin.call("delete", "/loki-a").status_code == 204
    policies.delete("move", author="test", reason="", now=now)
    assert admin.call("delete", "/metrics").status_code == 204


def test_the_token_is_stored_encrypted_and_never_shown(admin: Admin) -> None:
    admin.call("post", "", body())
    stored = Source.objects.filter(name="loki-a").values_list("token", flat=True)
    assert SECRET not in str(list(stored))
    assert Source.objects.get(name="loki-a").token == SECRET
    admin.call("patch", "/loki-a", {"token": "another"})
    entry = Entry.objects.get(verb="source.changed")
    assert entry.data["changed"] == {"token": {"before": "", "after": "changed"}}


def test_url_and_token_may_be_given_as_settings(admin: Admin) -> None:
    inside = {"url": "http://loki.loki:3100", "token": SECRET, "tenant": "a"}
    made = admin.call("post", "", {"name": "loki-a", "kind": "loki", "cluster": "east", "settings": inside})
    assert made.status_code == 201, made.content
    assert (made.json()["url"], made.json()["settings"]) == ("http://loki.loki:3100", {"tenant": "a"})
    row = Source.objects.get()
    assert (row.token, row.settings) == (SECRET, {"tenant": "a"})
    refused = admin.call("patch", "/loki-a", {"settings": {"url": "http://elsewhere:3100"}})
    assert refused.status_code == 400  # the token would go to another server
    moved = admin.call("patch", "/loki-a", {"settings": {"url": "http://elsewhere:3100", "token": "another"}})
    assert (moved.status_code, moved.json()["url"]) == (200, "http://elsewhere:3100")
    assert SECRET not in str(list(Entry.objects.values_list("data", flat=True)))


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"settings": {"url": "http://other:3100"}}, "settings/url"),
        ({"settings": {"token": "another"}}, "settings/token"),
        ({"token": "", "settings": {"token": 5}}, "settings/token"),
        ({"token": "", "settings": {"token": "x" * 4_001}}, "token"),
        ({"name": "Loki_A"}, "name"),
        ({"name": "-"}, "name"),
        ({"kind": "pods", "url": "", "token": ""}, "kind"),
        ({"kind": "splunk"}, "kind"),
        ({"cluster": "west"}, "cluster"),
        ({"url": ""}, "url"),
        ({"url": "http://user:password@loki"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"kind": "alertmanager", "token": ""}, "url"),
        ({"kind": "alertmanager", "url": ""}, "token"),
        ({"settings": {"lateness": 0}}, "settings/lateness"),
        ({"settings": {"lateness": "x"}}, "settings/lateness"),
        ({"settings": {"pod_namespaces": []}}, "settings/pod_namespaces"),
        ({"settings": {"colour": "red"}}, "settings/colour"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_invalid_source_settings_are_refused(admin: Admin, more: dict[str, Any], field: str) -> None:
    response = admin.call("post", "", body(**more))
    assert response.status_code == 400, response.content
    assert [error["field"] for error in response.json()["errors"]] == [field]
    assert Source.objects.count() == 0


def test_a_name_is_taken_once(admin: Admin) -> None:
    assert admin.call("post", "", body()).status_code == 201
    assert admin.call("post", "", body()).status_code == 400


@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_only_admins_change_sources(east: Cluster, now: datetime, role: str) -> None:
    add(east, "alertmanager", now=now)
    caller = Admin(role, east, now)
    assert caller.call("get", "/alertmanager").status_code == 200
    assert caller.call("post", "", body()).status_code == 403
    assert caller.call("patch", "/alertmanager", {"enabled": False}).status_code == 403
    assert caller.call("delete", "/alertmanager").status_code == 403
    assert Source.objects.get().enabled


def test_an_admin_of_another_cluster_cannot_see_or_feed_a_source(east: Cluster, now: datetime) -> None:
    add(east, "alertmanager", now=now)
    west = Cluster.objects.create(name="west", created_at=now)
    stranger = Admin("admin", west, now)
    assert stranger.call("get", "").json()["results"] == []
    for method, path in (("get", ""), ("patch", ""), ("delete", ""), ("post", "/test")):
        assert stranger.call(method, f"/alertmanager{path}").status_code == 404
    asked = {"kind": "source", "source": "alertmanager"}
    refused = stranger.client.post("/api/v1/tokens", data=asked, content_type="application/json")
    assert refused.status_code == 400
    assert not ApiToken.objects.exists()


def test_the_token_of_a_source_is_bound_to_its_cluster(admin: Admin, east: Cluster, now: datetime) -> None:
    add(east, "alertmanager", now=now)
    asked = {"kind": "source", "source": "alertmanager"}
    made = admin.client.post("/api/v1/tokens", data=asked, content_type="application/json")
    assert made.status_code == 201, made.content
    assert (made.json()["cluster"], made.json()["source"]) == ("east", "alertmanager")


def test_each_cluster_has_the_watched_sources_from_the_start(db: None, now: datetime) -> None:
    cluster = registry.add("north", actor="test", now=now)
    rows = Source.objects.filter(cluster=cluster)
    assert {row.kind for row in rows} == {"pods", "events", "conditions"}
    services.make_watched_sources(now)
    assert rows.count() == 3
    off = services.SOURCES.change(rows[0], {"enabled": False}, actor="test", reason="", now=now)
    assert not off.enabled
    with pytest.raises(FieldError):
        services.SOURCES.delete(off, actor="test", reason="", now=now)


def test_a_test_reports_the_events_of_the_last_hour(
    admin: Admin, alertmanager: Sender, alert: Any, now: datetime
) -> None:
    silent = admin.call("post", "/alertmanager/test").json()
    assert (silent["ok"], silent["seen"], silent["lag_seconds"]) == (False, 0, None)
    assert silent["error"]
    alertmanager.post(notification(alert()))
    heard = admin.call("post", "/alertmanager/test").json()
    assert (heard["ok"], heard["seen"], heard["error"]) == (True, 1, None)
    assert 60 <= heard["lag_seconds"] < 120
    TakenEvent.objects.update(at=now - timedelta(hours=2))
    assert admin.call("post", "/alertmanager/test").json()["seen"] == 0


def test_a_watched_source_is_tested_against_its_cluster(admin: Admin, east: Cluster, now: datetime) -> None:
    services.make_watched_sources(now)
    kube = FakeCluster(clock=lambda: now)
    uninstall = connections.install(east.pk, kube)
    try:
        assert admin.call("post", "/east-conditions/test").json()["ok"] is True
        assert admin.call("post", "/east-pods/test").json()["ok"] is True
        assert admin.call("post", "/east-events/test").json()["ok"] is True
        kube.fail("version", port.Unavailable("503"))
        assert admin.call("post", "/east-events/test").json()["ok"] is False
    finally:
        uninstall()


def test_a_token_is_not_sent_to_another_host(admin: Admin) -> None:
    admin.call("post", "", body())
    refused = admin.call("patch", "/loki-a", {"url": "http://elsewhere.example:3100"})
    assert (refused.status_code, [one["field"] for one in refused.json()["errors"]]) == (400, ["token"])
    assert admin.call("patch", "/loki-a", {"url": "http://loki.loki:3100/behind"}).status_code == 200
    moved = {"url": "http://elsewhere.example:3100", "token": "another"}
    assert admin.call("patch", "/loki-a", moved).status_code == 200


def test_old_identities_are_forgotten(alertmanager: Sender, alert: Any, now: datetime) -> None:
    alertmanager.post(notification(alert()))
    assert services.prune(now=now + timedelta(days=6)) == 0
    assert services.prune(now=now + timedelta(days=8)) == 1
    assert Incident.objects.count() == 1


def reported(*arguments: str) -> str:
    out = io.StringIO()
    call_command("source", *arguments, stdout=out)
    return out.getvalue()


def test_the_command(east: Cluster, tmp_path: Any) -> None:
    secret = tmp_path / "token"
    secret.write_text(SECRET + "\n")
    reported(
        *("add", "prom", "--kind", "prometheus", "--cluster", "east", "--url", "http://prometheus:9090"),
        "--token-file",
        str(secret),
        *("--set", "interval=30", "query=up"),
    )
    row = Source.objects.get(name="prom")
    assert (row.token, row.settings) == (SECRET, {"interval": 30, "query": "up"})
    assert "alerts/events" in reported("add", "alerts", "--kind", "alertmanager")
    listed = reported("list")
    assert "east-pods\tpods\teast\ton" in listed
    assert SECRET not in listed
    reported("set", "east-pods", "--off")
    assert "east-pods\tpods\teast\toff" in reported("list")
    reported("remove", "alerts")
    for wrong in (
        ("remove", "alerts"),
        ("remove", "east-pods"),
        ("test", "nothing"),
        ("test", "east-pods"),
        ("add", "x", "--kind", "prometheus"),
        ("add", "x", "--kind", "prometheus", "--url", "http://p", "--set", "interval"),
        ("add", "x", "--kind", "prometheus", "--url", "http://p", "--set", "interval=no"),
        ("add", "x", "--kind", "alertmanager", "--cluster", "nowhere"),
    ):
        with pytest.raises(CommandError):
            reported(*wrong)


def test_the_token_command(east: Cluster) -> None:
    out = io.StringIO()
    call_command("token", "create", "--kind", "source", "--source", "alerts", stdout=out)
    assert out.getvalue().startswith("kcs_")
    for wrong in (("--kind", "source"), ("--kind", "viewer", "--source", "alerts")):
        with pytest.raises(CommandError):
            call_command("token", "create", *wrong, stdout=out)


@pytest.mark.django_db
@pytest.mark.parametrize("taken", ["pods", "events", "conditions"])
def test_a_source_of_another_cluster_takes_no_name_away_from_a_new_one(taken: str, now: datetime) -> None:
    first = Cluster.objects.create(name="c1", created_at=now)
    Source.objects.create(name=f"prod-{taken}", kind="alertmanager", cluster=first, created_at=now)
    prod = Cluster.objects.create(name="prod", created_at=now)
    for _ in range(2):
        services.make_watched_sources(now)
    made = dict(Source.objects.filter(cluster=prod).values_list("kind", "name"))
    assert made == {kind: f"prod-{kind}" for kind in settings.WATCHED} | {taken: f"prod-{taken}-2"}
    assert Source.objects.filter(cluster=first, kind__in=settings.WATCHED).count() == len(settings.WATCHED)
