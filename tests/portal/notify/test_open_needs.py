"""The failure of a watch or a source is announced once when it begins and once when it has ended."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from kcover import audit, reasons
from kcover.needs import Need
from kcover.notify import events
from kcover_portal import needs_person
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import localization
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel, Notice, OpenNeed
from kcover_portal.notify.services import collect, open_needs
from kcover_portal.sources.models import Source
from tests.portal.notify.conftest import make_channel
from tests.portal.notify.receiver import Receiver
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]
WHY = reasons.of("pod_gone")


@pytest.fixture
def source(world: World) -> Source:
    return Source.objects.create(
        name="alerts", kind="alertmanager", cluster=world.cluster, created_by="test", created_at=world.now
    )


def break_source(source: Source, *, now: datetime | None) -> None:
    error = WHY.to_json() if now else {}
    Source.objects.filter(pk=source.pk).update(error=error, error_at=now)


def break_watch(cluster: Cluster, error: str) -> None:
    because = reasons.of("cluster_rejected", error=error).to_json() if error else {}
    Cluster.objects.filter(pk=cluster.pk).update(watch_error=because)


def pass_time(world: World, *, seconds: float) -> None:
    """Sweeps as often as the portal does when it is idle."""
    until = world.now + timedelta(seconds=seconds)
    while world.now < until:
        world.now = min(until, world.now + timedelta(seconds=20))
        collect.collect(now=world.now)


def notices() -> list[tuple[str, str, str, Any]]:
    return list(Notice.objects.order_by("pk").values_list("kind", "cluster", "what", "because"))


def test_a_failing_source_and_its_end_are_notified_once(world: World, channel: Channel, source: Source) -> None:
    break_source(source, now=world.now)
    pass_time(world, seconds=600)
    assert notices() == [("source.failing", "c1", "alerts", WHY.to_json())]
    assert Notice.objects.get().record == source.pk
    break_source(source, now=None)
    pass_time(world, seconds=600)
    assert notices()[1:] == [("source.cleared", "c1", "alerts", {})]
    assert not OpenNeed.objects.exists()
    break_source(source, now=world.now)
    pass_time(world, seconds=120)
    assert [kind for kind, *_ in notices()] == ["source.failing", "source.cleared", "source.failing"]


def test_a_disconnected_watch_is_notified_with_its_error(world: World, channel: Channel) -> None:
    break_watch(world.cluster, "forbidden")
    pass_time(world, seconds=600)
    because = reasons.of("cluster_rejected", error="forbidden").to_json()
    assert notices() == [("watch.failing", "c1", "", because)]
    break_watch(world.cluster, "")
    pass_time(world, seconds=80)
    assert notices()[1:] == [("watch.cleared", "c1", "", {})]


def test_a_short_failure_is_no_message(world: World, channel: Channel) -> None:
    break_watch(world.cluster, "forbidden")
    pass_time(world, seconds=40)
    break_watch(world.cluster, "")
    pass_time(world, seconds=120)
    assert (notices(), OpenNeed.objects.count()) == ([], 0)


def test_a_failure_that_comes_and_goes_is_one_message(world: World, channel: Channel) -> None:
    break_watch(world.cluster, "forbidden")
    pass_time(world, seconds=80)
    for error in ("", "forbidden") * 5:
        break_watch(world.cluster, error)
        pass_time(world, seconds=40)
    assert [kind for kind, *_ in notices()] == ["watch.failing"]


@pytest.mark.parametrize("deleted", [True, False])
def test_the_end_of_a_deleted_or_disabled_source_is_notified(
    world: World, channel: Channel, source: Source, deleted: bool
) -> None:
    break_source(source, now=world.now)
    pass_time(world, seconds=80)
    if deleted:
        source.delete()
    else:
        Source.objects.filter(pk=source.pk).update(enabled=False)
    pass_time(world, seconds=80)
    assert notices()[1:] == [
        ("source.cleared", "c1", "alerts", reasons.of("need_withdrawn", name="alerts").to_json()),
    ]


def test_a_pager_resolves_the_alert_it_opened(world: World, receiver: Receiver, source: Source) -> None:
    pager = make_channel(receiver, name="duty", kind="pagerduty", now=world.now, secret="k" * 32)
    services.make_route(pager, kinds=["watch.failing", "source.failing"], actor="test", now=world.now)
    break_watch(world.cluster, "forbidden")
    break_source(source, now=world.now)
    pass_time(world, seconds=80)
    assert set(pager.alerts.values_list("name", flat=True)) == {f"watch-{world.cluster.pk}", f"source-{source.pk}"}
    break_watch(world.cluster, "")
    break_source(source, now=None)
    pass_time(world, seconds=80)
    assert not pager.alerts.exists()
    actions = Notice.objects.order_by("pk").values_list("kind", "action")
    assert set(actions) == {
        ("watch.failing", "trigger"),
        ("source.failing", "trigger"),
        ("watch.cleared", "resolve"),
        ("source.cleared", "resolve"),
    }


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_people_read_it_in_the_channels_language(
    world: World, channel: Channel, source: Source, delivered: Delivered, language: str, settings: Any
) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    services.CHANNELS.change(channel, {"language": language}, actor="test", reason="", now=world.now)
    break_source(source, now=world.now)
    delivered()
    (document,) = delivered()
    (event,) = document["events"]
    with translation.override(language):
        assert event["because"] == localization.say(WHY)
    assert (event["kind"], event["because_reason"]) == ("source.failing", WHY.to_json())
    (line,) = document["lines"]
    assert line.endswith(f" – {event['because']} https://portal.example/sources/")


def test_notifications_and_the_list_agree(world: World, channel: Channel, source: Source) -> None:
    break_watch(world.cluster, "forbidden")
    break_source(source, now=world.now)
    pass_time(world, seconds=80)
    clusters = list(Cluster.objects.all())
    waiting = needs_person.rows(Scope.of(*clusters), clusters, kinds=open_needs.EVENTS, now=world.now)
    listed = {(kind, row.pk) for kind, rows in waiting.items() for row in rows}
    assert {kind for kind, _ in listed} == {Need.WATCH, Need.SOURCE}
    assert {(row.kind, row.record) for row in OpenNeed.objects.exclude(announced_at=None)} == listed


def test_a_look_without_changes_is_four_statements(world: World, source: Source) -> None:
    break_source(source, now=world.now)
    pass_time(world, seconds=80)
    with CaptureQueriesContext(connection) as asked:
        assert not open_needs.has_changes(now=world.now)
    assert len(asked) == 4


def test_each_polled_need_has_the_event_that_announces_it() -> None:
    for need, (begin, end) in open_needs.EVENTS.items():
        assert {begin, end} <= set(events.KINDS), need


def test_a_divergence_of_the_audit_log_from_its_anchor_is_notified(world: World, channel: Channel) -> None:
    anchored_at = world.now
    act = audit.DatabaseDiverged(anchored_at=anchored_at, because=(WHY,))
    ledger.record("", act, actor="system", now=world.now)
    pass_time(world, seconds=20)
    because = reasons.both(reasons.of("database_diverged", at=reasons.moment(anchored_at)), WHY)
    assert notices() == [("ledger.diverged", "", "", because.to_json())]
