"""Conditions of nodes, from the watch to incidents."""

from datetime import datetime, timedelta

from kcover.sources.conditions import Condition
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.kube.wire import nodes as wire
from kcover_portal.sources import services
from kcover_portal.sources.models import Source


def shown(*found: Condition, name: str = "gpu-1") -> port.Node:
    return port.Node(name=name, uid="u", stated=found)


def deadlock(status: str = "True", *, since: datetime) -> Condition:
    return Condition(type="KernelDeadlock", status=status, reason="DockerHung", since=since)


def open_codes() -> list[str]:
    return list(Incident.objects.filter(state="open").values_list("code", flat=True))


def feed_of(east: Cluster, now: datetime) -> services.ConditionFeed:
    services.make_watched_sources(now)
    return services.ConditionFeed(east)


def test_a_condition_opens_and_ends_an_incident(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    feed.feed([shown(deadlock(since=now))], now=now)
    assert open_codes() == ["KernelDeadlock=True/DockerHung"]
    later = now + timedelta(minutes=1)
    feed.feed([shown(deadlock("Unknown", since=later))], now=later)
    assert len(open_codes()) == 1
    feed.feed([shown(deadlock("False", since=later))], now=later)
    assert open_codes() == []


def test_a_watch_that_starts_again_counts_nothing_twice(east: Cluster, now: datetime) -> None:
    for _ in range(2):
        feed_of(east, now).feed([shown(deadlock(since=now))], now=now)
    assert Incident.objects.get().count == 1


def test_a_condition_that_must_last_is_read_again(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    table = [{"type": "Slow", "status": "True", "reason": "", "for": 60, "severity": "warning"}]
    Source.objects.filter(kind="conditions").update(settings={"table": table})
    slow = Condition(type="Slow", status="True", since=now)
    feed.feed([shown(slow)], now=now)
    assert open_codes() == []
    feed.feed([], now=now + timedelta(seconds=61))
    assert open_codes() == ["Slow=True"]


def test_a_source_that_is_off_says_nothing(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    Source.objects.filter(kind="conditions").update(enabled=False)
    feed.feed([shown(deadlock(since=now))], now=now)
    assert open_codes() == []
    Source.objects.filter(kind="conditions").update(enabled=True)
    later = now + timedelta(seconds=6)
    feed.feed([shown(deadlock(since=now))], now=later)
    assert len(open_codes()) == 1


def test_a_broken_source_is_told_and_stops_nothing(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    Source.objects.filter(kind="conditions").update(settings={"table": [{"type": "Slow"}]})
    feed.feed([shown(deadlock(since=now))], now=now)
    assert Source.objects.get(kind="conditions").error["code"] == "source_broken"


def test_the_watch_reads_reason_and_message() -> None:
    condition = {"type": "A", "status": "True", "reason": "B", "message": "c"}
    node = wire.NodeObject(status=wire.NodeStatus(conditions=[wire.base.Condition(**condition)])).value()
    assert node.stated == (Condition(**condition),)
