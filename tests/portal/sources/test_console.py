"""The page of sources, and how the portal tells that one fails."""

from datetime import datetime, timedelta

import pytest
from django.test import Client

from kcover_portal import needs_person
from kcover_portal.fleet.models import Cluster
from kcover_portal.shared_reads import portal_checks
from kcover_portal.sources import queries, services
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import source_settings
from tests.portal.sources.conftest import Sender, add, notification, pull
from tests.portal.sources.stand_ins import Answered, StandIns
from tests.portal.sources.test_source_settings import Admin

SECOND = timedelta(seconds=1)
REJECTED = 'end="rejected",'


@pytest.fixture
def admin(east: Cluster, now: datetime) -> Client:
    return Admin("admin", east, now).client


def text(response) -> str:
    return response.content.decode()


def checks(now: datetime) -> dict[str, str]:
    return {one.check: one.because.parts[0].code for one in portal_checks.problems(now=now)}


def test_an_admin_adds_changes_tests_and_deletes_a_source(
    admin: Client, east: Cluster, stand_ins: StandIns, now: datetime
) -> None:
    form = {"name": "logs", "cluster": "east", "url": stand_ins.url, "token": "hush", "settings": "lateness=90"}
    assert admin.get("/sources/new/loki/").status_code == 200
    assert admin.post("/sources/new/loki/", form).status_code == 302
    row = Source.objects.get(name="logs")
    assert (row.cluster, row.url, row.token, row.settings) == (east, stand_ins.url, "hush", {"lateness": 90})
    shown = text(admin.get("/sources/")) + text(admin.get("/sources/logs/change/"))
    assert "lateness=90" in shown
    assert "hush" not in shown
    change = {"url": "", "token": "", "settings": "tenant=a\npod_namespaces=ml,dev", "enabled": "no", "reason": "x"}
    assert admin.post("/sources/logs/change/", change).status_code == 302
    row.refresh_from_db()
    assert (row.token, row.enabled) == ("hush", False)
    assert row.settings == {"tenant": "a", "pod_namespaces": ["ml", "dev"]}
    assert admin.post("/sources/logs/test/").context["trial"].ok is True
    assert admin.get("/sources/logs/test/").status_code == 405
    assert admin.post("/sources/logs/delete/", {"reason": "moved"}).status_code == 302
    assert not Source.objects.filter(name="logs").exists()


def test_a_query_that_believes_every_series_has_a_warning(admin: Client, east: Cluster, stand_ins: StandIns) -> None:
    query = "query=DCGM_FI_DEV_XID_ERRORS"
    form = {"name": "dcgm", "cluster": "east", "url": stand_ins.url, "token": "", "settings": query}
    assert admin.post("/sources/new/prometheus/", form).status_code == 302
    (shown,) = [one for one in admin.get("/sources/").context["sources"] if one["row"].name == "dcgm"]
    assert shown["warning"].code == "source_selects_all"
    row = Source.objects.get(name="dcgm")
    for settings in ({"query": 'DCGM_FI_DEV_XID_ERRORS{job="nvidia-dcgm-exporter"}'}, {}):  # the default looks at jobs
        row.settings = settings
        assert queries.warning(row) is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": "A B"}, "name"),
        ({"url": "ftp://x"}, "url"),
        ({"url": ""}, "url"),
        ({"settings": "lateness=no"}, "settings"),
        ({"settings": "lateness"}, "settings"),
        ({"settings": "colour=red"}, "settings"),
        ({"cluster": "west"}, "cluster"),
        ({"name": ""}, "name"),
    ],
)
def test_an_error_is_shown_beside_its_field(admin: Client, given: dict[str, str], field: str) -> None:
    form = {"name": "logs", "cluster": "east", "url": "http://loki:3100", "token": "", "settings": "", **given}
    response = admin.post("/sources/new/loki/", form)
    assert response.status_code == 422
    assert set(response.context["form"].errors) == {field}


def test_only_existing_kinds_can_be_added_and_watched_sources_stay(admin: Client, now: datetime) -> None:
    services.make_watched_sources(now)
    for kind in ("pods", "events", "conditions", "pigeon"):
        assert admin.get(f"/sources/new/{kind}/").status_code == 404
    assert admin.post("/sources/east-events/delete/", {"reason": "x"}).status_code == 422
    off = {"settings": "", "enabled": "no", "reason": "quiet"}
    assert admin.post("/sources/east-events/change/", off).status_code == 302
    assert Source.objects.get(name="east-events").enabled is False


@pytest.mark.parametrize(("role", "test"), [("viewer", 403), ("operator", 200)])
def test_roles_limit_the_source_pages(east: Cluster, stand_ins: StandIns, now: datetime, role: str, test: int) -> None:
    add(east, "loki", now=now, url=stand_ins.url)
    west = Cluster.objects.create(name="west", created_at=now)
    add(west, "loki", now=now, name="theirs", url=stand_ins.url)
    client = Admin(role, east, now).client
    page = text(client.get("/sources/"))
    assert "loki" in page
    assert "theirs" not in page
    assert "/change/" not in page
    assert client.post("/sources/loki/test/").status_code == test
    assert client.post("/sources/theirs/test/").status_code == 404
    for path in ("new/loki/", "loki/change/", "loki/delete/"):
        assert client.get(f"/sources/{path}").status_code == 403


def test_a_failing_source_is_reported(admin: Client, east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    row = pull(add(east, "loki", now=now, url=stand_ins.url), at=now)
    assert "source loki" not in checks(now)
    for _ in range(queries.FAILING_AFTER):
        stand_ins.troubles.append(Answered(500))
        row = pull(row, at=now + SECOND)
    assert checks(now)["source loki"] == "source_failing"
    assert needs_person.counts([east], now=now)["east", "source"] == 1
    assert "/sources/" in text(admin.get("/"))
    assert admin.get("/sources/").context["sources"][0]["state"] == "trouble"
    pull(row, at=now + 2 * SECOND)
    assert "source loki" not in checks(now)
    assert needs_person.counts([east], now=now)["east", "source"] == 0


def test_a_source_that_lags_behind_is_reported(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    row = pull(add(east, "loki", now=now, url=stand_ins.url), at=now)
    late = now + queries.LATE_AFTER + 30 * SECOND
    assert checks(late)["source loki"] == "source_late"
    row = pull(row, at=now + timedelta(hours=20))
    assert checks(now + timedelta(hours=20))["source loki"] == "source_late"  # still catching up
    Source.objects.update(enabled=False)
    assert "source loki" not in checks(late)


def test_the_error_of_a_newer_version_is_no_trouble(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    row = pull(add(east, "loki", now=now, url=stand_ins.url), at=now)
    Source.objects.update(error={"code": "of_a_newer_version", "params": {}})
    row.refresh_from_db()
    assert queries.troubles([row], now=now) == {}


def test_an_invalid_request_is_reported_until_the_next_valid_one(
    alertmanager: Sender, alert, east: Cluster, now: datetime
) -> None:
    alertmanager.post({"version": "3"})
    assert checks(now)["source alertmanager"] == "source_failing"
    alertmanager.post(notification(alert()))
    assert "source alertmanager" not in checks(now)


def test_metrics_count_accepted_and_rejected_reports(east: Cluster, alertmanager: Sender, alert, now: datetime) -> None:
    alertmanager.post(notification(alert(), alert(node="gpu-9")))
    services.make_watched_sources(now)
    source_settings.note_error(Source.objects.get(name="east-pods"), None, now=now)
    said = text(Client().get("/metrics", REMOTE_ADDR="127.0.0.1"))
    label = 'cluster="east",{}kind="alertmanager",source="alertmanager"'
    assert f"kcover_source_well{{{label.format('')}}} 1.0" in said
    assert f"kcover_source_events_total{{{label.format(REJECTED)}}} 1.0" in said
