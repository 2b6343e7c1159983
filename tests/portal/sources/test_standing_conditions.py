"""A condition that stands through a reboot: its writer tells it again by a heartbeat, or has died."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kcover.sources.conditions import Condition
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.kube import port
from kcover_portal.rescue.models import Rescue
from kcover_portal.sources import services
from tests.portal.rescue.world import NODE, World
from tests.portal.sources.conftest import stamp

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)
BEGAN = -600 * SECOND  # before the boot
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: heal}
spec:
  rules:
    - priority: 10
      match: {kinds: [condition]}
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
      verify: {agent: false}
"""


class Watched(World):
    """A node whose node-problem-detector writes a condition, and the watch that reads it."""

    def __init__(self) -> None:
        super().__init__(policy=POLICY)
        services.make_watched_sources(self.now)
        self.feed = services.ConditionFeed(self.cluster)
        self.began = self.now

    def state(self, status: str = "True", *, since: datetime | None = None) -> None:
        """The writer says now that the condition has this status."""
        told = {"type": "KernelDeadlock", "status": status, "reason": "DockerHung"}
        told |= {"lastTransitionTime": stamp(since or self.began), "lastHeartbeatTime": stamp(self.now)}
        stated = self.kube.objects.get("Node", "", NODE)["status"]["conditions"]
        stated[:] = [one for one in stated if one["type"] != told["type"]] + [told]
        self.look()

    def look(self) -> None:
        """The watch shows the node."""
        self.feed.feed(self.kube.list_nodes().items, now=self.now)

    def stand_until_rebooted(self) -> None:
        """The condition opens an incident, and the node reboots for it, a quarter of an hour later."""
        self.pass_time()
        self.state()
        self.work()
        self.until_reboot_is_asked()
        self.now += -BEGAN
        self.kube.reboot(NODE)
        self.pass_time()
        self.look()


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.uninstall()


def test_a_condition_that_stands_through_a_reboot_is_not_healed(watched: Watched) -> None:
    watched.stand_until_rebooted()
    for _ in range(9):
        watched.pass_time(60)
        watched.state()
        assert watched.step("verify").state == "waiting"
    for _ in range(3):
        watched.pass_time(60)
    [first, *_] = Rescue.objects.order_by("pk")
    assert first.outcome != "healed"
    assert Incident.objects.get(state="open").boot_id == watched.node().boot_id


def test_a_condition_that_ends_soon_after_the_boot_is_healed(watched: Watched) -> None:
    watched.stand_until_rebooted()
    watched.pass_time(60)
    assert watched.step("verify").state == "waiting"
    watched.state("False", since=watched.now)
    assert watched.until("succeeded", seconds=10, rounds=5).outcome == "healed"
    assert Rescue.objects.count() == 1


def test_a_condition_of_a_dead_monitor_is_waited_for_and_never_counts(watched: Watched) -> None:
    watched.stand_until_rebooted()
    booted = watched.now
    assert watched.until("succeeded", seconds=30).outcome == "healed"
    assert watched.now - booted > 9 * 60 * SECOND
    for _ in range(14):
        watched.pass_time(60)
        watched.look()
    assert Rescue.objects.count() == 1
    assert not Incident.objects.filter(state="open").exists()
    assert not Occurrence.objects.exclude(doubt_until=None).exists()


@pytest.fixture
def booted(east: Cluster, now: datetime) -> datetime:
    """The watch has seen the new boot of gpu-1 a while ago."""
    at = now - timedelta(minutes=20)
    boots = {"boot_id": "boot-2", "past_boots": ["boot-1"], "boot_times": {"boot-2": at.isoformat()}}
    Node.objects.filter(name="gpu-1").update(**boots)
    services.make_watched_sources(now)
    return at


def shown(since: datetime, heartbeat: datetime | None, *, status: str = "True", boot_id: str = "boot-2") -> port.Node:
    stated = Condition(
        type="KernelDeadlock", status=status, reason="DockerHung", since=since, stands=since, heartbeat=heartbeat
    )
    return port.Node(name="gpu-1", uid="u", boot_id=boot_id, stated=(stated,))


def doubts() -> list[tuple[str, bool]]:
    """The boots about which it was told again, and whether nobody had stated it there."""
    rows = Occurrence.objects.order_by("pk").exclude(doubt={})
    return [(row.doubt["boot"], row.doubt.get("unheard", False)) for row in rows]


UNHEARD, HEARD = ("boot-2", True), ("boot-2", False)


@pytest.mark.parametrize(
    ("since", "heartbeats", "told"),
    [
        (BEGAN, [0], [UNHEARD]),
        (BEGAN, [0, 0, 0], [UNHEARD]),  # other conditions of the node change
        (BEGAN, [0, 300], [UNHEARD, HEARD]),
        (BEGAN, [0, 300, 600, 900], [UNHEARD, HEARD]),
        (BEGAN, [900, 900, 900], [UNHEARD]),  # of a clock that was ahead before the boot
        (BEGAN, [None, None], [UNHEARD]),
        (70 * SECOND, [80, 300], []),
    ],
)
def test_a_condition_is_reported_again_after_the_boot_once_its_monitor_confirms_it(
    east: Cluster, booted: datetime, since: timedelta, heartbeats: list[int | None], told: list[tuple[str, bool]]
) -> None:
    feed = services.ConditionFeed(east)
    feed.feed([shown(booted - 1200 * SECOND, booted - 1200 * SECOND, boot_id="boot-1")], now=booted - 1190 * SECOND)
    Incident.objects.all().delete()
    feed.feed([shown(booted + BEGAN, booted + BEGAN, boot_id="boot-1")], now=booted + BEGAN)
    for number, beat in enumerate(heartbeats):
        at = booted + (90 + 100 * number) * SECOND
        feed.feed([shown(booted + since, None if beat is None else booted + beat * SECOND)], now=at)
        services.ConditionFeed(east).feed([shown(booted + since, None)], now=at)  # another watch begins
    assert doubts() == told


def test_a_condition_that_has_stood_for_hours_is_not_reported_when_a_watch_begins(
    east: Cluster, booted: datetime
) -> None:
    feed = services.ConditionFeed(east)
    for minutes in (61, 66):
        at = booted + timedelta(minutes=minutes)
        feed.feed([shown(booted + BEGAN, at)], now=at)
    assert doubts() == []


def test_a_condition_without_an_open_incident_is_reported_once_its_monitor_confirms_it(
    east: Cluster, booted: datetime
) -> None:
    feed = services.ConditionFeed(east)
    feed.feed([shown(booted + BEGAN, booted)], now=booted + 60 * SECOND)
    assert doubts() == []
    Incident.objects.update(state="closed", closed_at=booted, closed_because={"code": "incident_verified"})
    feed.feed([shown(booted + BEGAN, booted + 80 * SECOND)], now=booted + 80 * SECOND)
    assert doubts() == [HEARD]


@pytest.mark.parametrize("skew", [-300.0, 0.5, 30.0])
def test_the_clock_of_the_node_does_not_remove_the_doubt(east: Cluster, booted: datetime, skew: float) -> None:
    """The time of such a report is the portal's own."""
    node = Node.objects.get(name="gpu-1")
    Agent.objects.create(node=node, seen_at=booted, boot_id="boot-2", boot_seen_at=booted, skew=skew)
    feed = services.ConditionFeed(east)
    feed.feed([shown(booted + BEGAN, booted + BEGAN, boot_id="boot-1")], now=booted + BEGAN)
    for number in range(2):
        at = booted + number * SECOND
        feed.feed([shown(booted + BEGAN, at)], now=at)
    assert doubts() == [UNHEARD, HEARD]


def test_a_condition_that_a_person_dismissed_is_not_reported_again(east: Cluster, booted: datetime) -> None:
    feed = services.ConditionFeed(east)
    feed.feed([shown(booted + BEGAN, booted + BEGAN, boot_id="boot-1")], now=booted + BEGAN)
    Incident.objects.update(state="closed", closed_at=booted, closed_because={"code": "closed_by_because"})
    for seconds in (60, 360):
        at = booted + seconds * SECOND
        feed.feed([shown(booted + BEGAN, at)], now=at)
    assert not Incident.objects.filter(state="open").exists()


def test_a_condition_is_reported_once_the_row_of_the_node_has_the_boot(east: Cluster, booted: datetime) -> None:
    feed = services.ConditionFeed(east)
    node = shown(booted + BEGAN, booted + 100 * SECOND, boot_id="boot-3")
    feed.feed([node], now=booted + 100 * SECOND)
    assert doubts() == []
    times = {"boot-2": booted.isoformat(), "boot-3": (booted + SECOND).isoformat()}
    Node.objects.filter(name="gpu-1").update(boot_id="boot-3", past_boots=["boot-2", "boot-1"], boot_times=times)
    feed.feed([node], now=booted + 101 * SECOND)
    assert doubts() == [("boot-3", True)]


def test_a_heartbeat_costs_nothing_where_no_condition_is_a_fault(
    east: Cluster, booted: datetime, django_assert_num_queries
) -> None:
    feed = services.ConditionFeed(east)
    healthy = shown(booted + BEGAN, booted + 100 * SECOND, status="False")
    feed.feed([healthy], now=booted + 100 * SECOND)
    later = replace(healthy, stated=(replace(healthy.stated[0], heartbeat=booted + 101 * SECOND),))
    with django_assert_num_queries(0):
        feed.feed([later], now=booted + 101 * SECOND)
