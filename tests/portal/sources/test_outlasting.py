"""A condition that stands through a reboot: its writer tells it again by a heartbeat, or has died."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kcover.sources.conditions import Condition
from kcover_portal.fleet.models import Cluster, Node
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
        self.cluster.hold_down = 120
        self.cluster.save()
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
    for _ in range(25):
        watched.pass_time(30)
        watched.state()
    [first, *_] = Rescue.objects.order_by("pk")
    assert first.outcome != "healed"
    assert Incident.objects.get(state="open").boot_id == watched.node().boot_id
    assert list(Occurrence.objects.order_by("pk").values_list("late_seconds", flat=True)) == [None, None]


def test_one_that_ends_soon_after_the_boot_is_healed(watched: Watched) -> None:
    watched.stand_until_rebooted()
    watched.pass_time(90)
    watched.state()
    assert watched.step("verify").state == "waiting"
    watched.pass_time(60)
    watched.state("False", since=watched.now)
    assert watched.until("succeeded", seconds=10).outcome == "healed"
    assert Rescue.objects.count() == 1


def test_one_whose_writer_has_died_says_nothing(watched: Watched) -> None:
    watched.stand_until_rebooted()
    assert watched.until("succeeded", seconds=30).outcome == "healed"
    for _ in range(14):
        watched.pass_time(60)
        watched.look()
    assert Occurrence.objects.count() == Rescue.objects.count() == 1


@pytest.fixture
def booted(east: Cluster, now: datetime) -> datetime:
    """The watch has seen the new boot of gpu-1 a while ago."""
    at = now - timedelta(minutes=20)
    boots = {"boot_id": "boot-2", "past_boots": ["boot-1"], "boot_times": {"boot-2": at.isoformat()}}
    Node.objects.filter(name="gpu-1").update(**boots)
    services.make_watched_sources(now)
    return at


def shown(since: datetime, heartbeat: datetime, *, status: str = "True", boot_id: str = "boot-2") -> port.Node:
    stated = Condition(
        type="KernelDeadlock", status=status, reason="DockerHung", since=since, stands=since, heartbeat=heartbeat
    )
    return port.Node(name="gpu-1", uid="u", boot_id=boot_id, stated=(stated,))


@pytest.mark.parametrize(
    ("since", "heartbeat", "told"),
    [
        (BEGAN, 66 * SECOND, ["boot-1", "boot-1"]),
        (BEGAN, 64 * SECOND, ["boot-1"]),  # by the doubt of the source, it may be of the boot before
        (BEGAN, BEGAN, ["boot-1"]),
        (70 * SECOND, 900 * SECOND, ["boot-2"]),
    ],
)
def test_a_heartbeat_in_the_boot_tells_it_again_and_in_doubt(
    east: Cluster, booted: datetime, since: timedelta, heartbeat: timedelta, told: list[str]
) -> None:
    feed = services.ConditionFeed(east)
    feed.feed([shown(booted + since, booted + heartbeat)], now=booted + 910 * SECOND)
    rows = Occurrence.objects.order_by("pk")
    assert list(rows.values_list("boot_id", flat=True)) == told
    assert [row.doubt.get("boot") for row in rows if row.doubt_until] == ["boot-2"] * (len(told) - 1)


def test_the_heartbeat_of_a_clock_that_is_ahead_may_be_of_the_boot_before(east: Cluster, booted: datetime) -> None:
    services.ConditionFeed(east).feed([shown(booted + BEGAN, booted + 900 * SECOND)], now=booted + 30 * SECOND)
    assert Occurrence.objects.count() == 1


def test_it_is_told_once_in_a_boot(east: Cluster, booted: datetime) -> None:
    feed = services.ConditionFeed(east)
    for seconds in (70, 370, 670):
        at = booted + seconds * SECOND
        feed.feed([shown(booted + BEGAN, at)], now=at)
        services.ConditionFeed(east).feed([shown(booted + BEGAN, at)], now=at)  # another watch begins
    assert Occurrence.objects.count() == 2


def test_what_stands_for_days_is_not_told_when_a_watch_begins(east: Cluster, booted: datetime) -> None:
    at = booted + timedelta(days=1, minutes=1)
    services.ConditionFeed(east).feed([shown(booted + BEGAN, at)], now=at)
    assert Occurrence.objects.count() == 1


def test_it_is_told_when_the_row_of_the_node_has_the_boot(east: Cluster, booted: datetime) -> None:
    feed = services.ConditionFeed(east)
    node = shown(booted + BEGAN, booted + 100 * SECOND, boot_id="boot-3")
    feed.feed([node], now=booted + 100 * SECOND)
    assert Occurrence.objects.count() == 1
    times = {"boot-2": booted.isoformat(), "boot-3": (booted + SECOND).isoformat()}
    Node.objects.filter(name="gpu-1").update(boot_id="boot-3", past_boots=["boot-2", "boot-1"], boot_times=times)
    feed.feed([node], now=booted + 101 * SECOND)
    assert Occurrence.objects.latest("pk").doubt["boot"] == "boot-3"


def test_a_heartbeat_costs_nothing_where_no_condition_is_a_fault(
    east: Cluster, booted: datetime, django_assert_num_queries
) -> None:
    feed = services.ConditionFeed(east)
    healthy = shown(booted + BEGAN, booted + 100 * SECOND, status="False")
    feed.feed([healthy], now=booted + 100 * SECOND)
    later = replace(healthy, stated=(replace(healthy.stated[0], heartbeat=booted + 101 * SECOND),))
    with django_assert_num_queries(0):
        feed.feed([later], now=booted + 101 * SECOND)
