"""The clock of a node, or a time that its kubelet states, may be at the ends of the calendar. Others are not harmed."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.kube.wire import nodes as wire
from tests.portal.sources.conftest import add, pull
from tests.portal.sources.stand_ins import StandIns
from tests.portal.sources.test_conditions import deadlock, feed_of, shown

FAR_AHEAD = (datetime(9998, 12, 30, tzinfo=UTC) - datetime(2026, 11, 30, tzinfo=UTC)).total_seconds()
KERNELS = {"k8s_daemonset_name": "dmesg", "k8s_namespace_name": "dmesg-logging"}
XID_79 = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture(params=[FAR_AHEAD, -FAR_AHEAD / 4, 86_400 * 365 * 50])
def stolen(request: pytest.FixtureRequest, east: Cluster, now: datetime) -> Node:
    """A node whose agent tells a time far from the portal's."""
    node = Node.objects.get(name="gpu-1")
    Node.objects.filter(pk=node.pk).update(past_boots=["boot-0"], boot_times={"boot-1": now.isoformat()})
    Agent.objects.create(node=node, boot_id="boot-1", boot_seen_at=now, seen_at=now, skew=request.param)
    return node


def nodes_with_faults() -> set[str]:
    return set(Incident.objects.values_list("node__name", flat=True))


def test_a_condition_with_a_far_clock_does_not_affect_other_nodes(stolen: Node, east: Cluster, now: datetime) -> None:
    feed = feed_of(east, now)
    feed.feed([shown(deadlock(since=now)), shown(deadlock(since=now), name="gpu-2")], now=now)
    assert nodes_with_faults() == {"gpu-1", "gpu-2"}


def test_a_line_with_a_far_clock_does_not_block_a_log(
    stolen: Node, east: Cluster, now: datetime, stand_ins: StandIns
) -> None:
    source = add(east, "loki", now=now, url=stand_ins.url)
    for node in ("gpu-1", "gpu-2"):
        stand_ins.logs.add({"host": node, **KERNELS}, XID_79, at=now - timedelta(seconds=5))
    assert pull(source, at=now).error == {}
    assert nodes_with_faults() == {"gpu-1", "gpu-2"}


@pytest.mark.parametrize("year", [1, 2, 9999])
def test_a_condition_of_any_year_is_taken(east: Cluster, now: datetime, year: int) -> None:
    feed = feed_of(east, now)
    conditions = {"metadata": {"name": "gpu-1", "uid": "u"}, "status": {"conditions": [stated(year)]}}
    node = msgspec.convert(conditions, wire.NodeObject).value()
    feed.feed([node, shown(deadlock(since=now), name="gpu-2")], now=now)
    assert nodes_with_faults() == {"gpu-1", "gpu-2"}
    for zone in (timedelta(hours=14), timedelta(hours=-12)):
        shown_at = [at.astimezone(timezone(zone)) for at in Occurrence.objects.values_list("seen_at", flat=True)]
        assert len(shown_at) == 2


def stated(year: int) -> dict[str, str]:
    """A condition that stands since the first second of a year, or since the last of the calendar."""
    at = f"{year:04}-01-01T00:00:01Z" if year < 9999 else "9999-12-31T23:59:59Z"
    return {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung", "lastTransitionTime": at}
