"""Conditions of nodes, from the watch to incidents."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kcover.sources.conditions import Condition
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.kube.wire import nodes as wire
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from tests.portal.sources.test_witnesses import agent_reports, xid


def shown(*found: Condition, name: str = "gpu-1") -> port.Node:
    return port.Node(name=name, uid="u", stated=found)


def booted(boot_id: str, *found: Condition) -> port.Node:
    return port.Node(name="gpu-1", uid="u", boot_id=boot_id, stated=found)


def at(moment: datetime) -> str:
    return moment.isoformat()


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


SLOW = {"type": "Slow", "status": "True", "reason": "", "for": 60, "severity": "warning"}


def flapping(east: Cluster, now: datetime) -> services.ConditionFeed:
    feed = feed_of(east, now)
    Source.objects.filter(kind="conditions").update(settings={"table": [SLOW]})
    return feed


def slow(status: str, reason: str, since: datetime) -> Condition:
    return Condition(type="Slow", status=status, reason=reason, since=since)


def test_another_reason_does_not_restart_the_hold_time(east: Cluster, now: datetime) -> None:
    feed = flapping(east, now)
    for second in (0, 25, 50, 75):
        at = now + timedelta(seconds=second)
        feed.feed([shown(slow("True", f"Cause{second}", at))], now=at)
        assert open_codes() == ([] if second < 60 else ["Slow=True/Cause75"])


def test_a_break_in_the_status_restarts_the_hold_time(east: Cluster, now: datetime) -> None:
    for status in ("False", "Unknown"):
        feed = flapping(east, now)
        for second, stated in ((0, "True"), (30, status), (50, "True"), (75, "True")):
            at = now + timedelta(seconds=second)
            feed.feed([shown(slow(stated, f"Cause{second}", at))], now=at)
        assert open_codes() == []


def test_another_machine_of_the_same_name_restarts_the_hold_time(east: Cluster, now: datetime) -> None:
    feed = flapping(east, now)
    later = now + timedelta(seconds=70)
    feed.feed([shown(slow("True", "Cause", now))], now=now)
    feed.feed([port.Node(name="gpu-1", uid="other", stated=(slow("True", "Cause", later),))], now=later)
    assert open_codes() == []


def test_a_disabled_source_reports_nothing(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    Source.objects.filter(kind="conditions").update(enabled=False)
    feed.feed([shown(deadlock(since=now))], now=now)
    assert open_codes() == []
    Source.objects.filter(kind="conditions").update(enabled=True)
    later = now + timedelta(seconds=6)
    feed.feed([shown(deadlock(since=now))], now=later)
    assert len(open_codes()) == 1


def test_a_broken_source_is_reported_and_does_not_stop_the_watch(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    Source.objects.filter(kind="conditions").update(settings={"table": [{"type": "Slow"}]})
    feed.feed([shown(deadlock(since=now))], now=now)
    assert Source.objects.get(kind="conditions").error["code"] == "source_broken"


def test_the_conditions_of_clouds_are_read(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    found = (
        Condition(type="XIDError", status="True", reason="XIDErrorIsPresent", message="NHC2001 Xid 48", since=now),
        Condition(type="GPUClockThrottling", status="True", reason="GPUClockThrottlingDetected", since=now),
        Condition(type="XidCriticalError", status="True", reason='{"79":true}', message="6e43a052", since=now),
    )
    feed.feed([shown(*found)], now=now)
    rows = Incident.objects.filter(state="open").values_list("code", "alias")
    assert {code.partition("/")[0]: alias for code, alias in rows} == {
        "XIDError=True": "xid 48",
        "GPUClockThrottling=True": "condition GPUClockThrottling=True/GPUClockThrottlingDetected",
        "XidCriticalError=True": "xid 79",
    }


def test_a_clock_that_was_ahead_does_not_keep_a_condition_open(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    feed.feed([shown(deadlock(since=now + timedelta(hours=3)))], now=now)
    assert len(open_codes()) == 1
    later = now + timedelta(minutes=5)
    feed.feed([shown(deadlock("False", since=later))], now=later)
    assert open_codes() == []


def named(*told: int, since: datetime, status: str = "True") -> Condition:
    """GKE's condition, whose reason names Xids."""
    reason = json.dumps({str(one): True for one in told})
    return Condition(type="XidCriticalError", status=status, reason=reason, since=since)


def test_an_xid_that_is_added_to_a_condition_opens_an_incident(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    feed.feed([shown(named(43, since=now))], now=now)
    later = now + timedelta(minutes=5)
    feed.feed([shown(named(43, 79, since=now))], now=later)
    feed.feed([shown(named(43, 79, since=now))], now=later + timedelta(minutes=1))
    rows = Incident.objects.order_by("pk").values_list("code", "alias", "is_user_fault", "count", "state")
    assert list(rows) == [
        ("XidCriticalError=True", "xid 43", True, 1, "open"),
        ("XidCriticalError=True/79", "xid 79", False, 1, "open"),
    ]
    over = later + timedelta(minutes=2)
    feed.feed([shown(named(since=over, status="False"))], now=over)
    assert open_codes() == []


def test_the_agent_joins_its_xid_of_a_condition_that_names_several(east: Cluster, now: datetime) -> None:
    feed_of(east, now).feed([shown(named(43, 79, since=now))], now=now)
    agent_reports(east, xid(), at=now)
    told = {row.alias: (row.kind, row.code, row.occurrences.count()) for row in Incident.objects.all()}
    assert told == {"xid 43": ("condition", "XidCriticalError=True/43", 1), "xid 79": ("xid", "79", 2)}


def test_another_xid_in_the_message_opens_an_incident(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    for minute, text in enumerate(("Xid 43, seen 1 times", "Xid 43, seen 2 times", "Xid 43 and 48 and 79")):
        one = Condition(type="XIDErrors", status="True", reason="Bad", message=text, since=now)
        feed.feed([shown(one)], now=now + timedelta(minutes=minute))
    rows = set(Incident.objects.values_list("code", "alias", "count"))
    assert rows == {
        ("XIDErrors=True/Bad", "xid 43", 1),
        ("XIDErrors=True/Bad/48", "xid 48", 1),
        ("XIDErrors=True/Bad/79", "xid 79", 1),
    }


@pytest.mark.parametrize("is_watch_new", [False, True])
def test_a_condition_that_the_next_boot_removes_has_passed(east: Cluster, now: datetime, is_watch_new: bool) -> None:
    """GKE's health checker never sets it to False."""
    feed = feed_of(east, now)
    feed.feed([booted("boot-1", named(43, 79, since=now))], now=now)
    feed.feed([booted("boot-1")], now=now + timedelta(minutes=1))
    assert len(open_codes()) == 2  # whoever removed it, the node has not started again
    Node.objects.filter(name="gpu-1").update(boot_id="boot-2", past_boots=["boot-1"])
    later = now + timedelta(minutes=5)
    feed.feed([booted("boot-2", named(43, 79, since=now))], now=later)
    assert len(open_codes()) == 2
    feed = feed_of(east, now) if is_watch_new else feed
    feed.feed([booted("boot-2")], now=later + timedelta(minutes=1))
    assert open_codes() == []


def test_a_removed_condition_ends_nothing_of_its_own_boot_or_another_type(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    feed.feed([booted("boot-1", deadlock(since=now))], now=now)
    Source.objects.filter(kind="conditions").update(settings={"presets": ["gke"]})
    later = now + timedelta(minutes=5)
    Node.objects.filter(name="gpu-1").update(boot_id="boot-2", past_boots=["boot-1"], boot_times={"boot-2": at(now)})
    feed.feed([booted("boot-2", named(79, since=later))], now=later)
    feed.feed([booted("boot-2")], now=later + timedelta(minutes=1))
    assert set(open_codes()) == {"KernelDeadlock=True/DockerHung", "XidCriticalError=True"}


def test_a_new_object_of_a_node_has_no_conditions_at_first(east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    feed.feed([booted("boot-1", deadlock(since=now))], now=now)
    Node.objects.filter(name="gpu-1").update(boot_id="boot-2", past_boots=["boot-1"])
    later = now + timedelta(minutes=5)
    feed.feed([replace(booted("boot-2"), uid="another")], now=later)
    assert open_codes() == ["KernelDeadlock=True/DockerHung"]
    feed.feed([replace(booted("boot-2", deadlock("False", since=later)), uid="another")], now=later)
    assert open_codes() == []


def test_the_watch_reads_reason_and_message() -> None:
    condition = {"type": "A", "status": "True", "reason": "B", "message": "c"}
    node = wire.NodeObject(status=wire.NodeStatus(conditions=[wire.base.Condition(**condition)])).value()
    assert node.stated == (Condition(**condition),)
