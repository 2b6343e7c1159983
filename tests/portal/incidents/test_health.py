"""Health of nodes and GPUs from the rows: what the cluster says, the agent, incidents and checks."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover_portal.fleet.models import Agent, CheckChange, CheckResult, Cluster, Gpu, Node
from kcover_portal.incidents import queries
from kcover_portal.incidents.models import Incident

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(now: datetime) -> Node:
    cluster = Cluster.objects.create(name="east", created_at=now, watched_at=now)
    node = Node.objects.create(cluster=cluster, name="gpu-1", created_at=now, in_cluster=True, ready=True)
    Agent.objects.create(node=node, seen_at=now, boot_id="b", boot_seen_at=now)
    for index in range(2):
        Gpu.objects.create(node=node, index=index, uuid=f"GPU-{index}", pci=f"00000000:0{index}:00.0", seen_at=now)
    return node


def health(node: Node, now: datetime) -> tuple[str, list[str], list[tuple[str, str]]]:
    """The node's state, its GPUs', and what speaks against the node."""
    fresh = Node.objects.select_related("cluster", "agent").get(pk=node.pk)
    found = queries.health_of([fresh], now=now)[node.pk]
    gpus = [found.gpus[gpu.pk].state for gpu in node.devices.all()]
    return found.node.state, gpus, [(cause.kind, cause.about) for cause in found.node.causes]


def incident(node: Node, opened: datetime, *, closed: datetime | None = None, **more: Any) -> Incident:
    values = {"kind": "xid", "code": "94", "severity": "fatal", "device": "0000:01:00", **more}
    state = "open" if closed is None else "closed"
    return Incident.objects.create(
        cluster=node.cluster, node=node, state=state, opened_at=opened, last_at=opened, closed_at=closed, **values
    )


def test_a_node_without_findings_is_healthy(node: Node, now: datetime) -> None:
    assert health(node, now) == ("healthy", ["healthy"] * 2, [])


def test_an_open_fault_is_the_nodes_and_its_gpus(node: Node, now: datetime) -> None:
    incident(node, now)
    assert health(node, now) == ("unhealthy", ["healthy", "unhealthy"], [("fault", "xid 94")])


def test_a_check_with_repeated_errors_does_not_change_the_nodes_health(node: Node, now: datetime) -> None:
    CheckResult.objects.create(node=node, name="nvml", status="error", seen_at=now, changed_at=now)
    for minutes, before, status in (
        (13, "pass", "error"),
        (9, "error", "pass"),
        (5, "pass", "error"),
        (1, "pass", "error"),
    ):
        CheckChange.objects.create(
            node=node, name="nvml", before=before, status=status, at=now - timedelta(minutes=minutes)
        )
    assert health(node, now) == ("healthy", ["healthy"] * 2, [])


def test_a_check_counts_until_the_agents_next_report_is_overdue(node: Node, now: datetime) -> None:
    for name, device in (("gpu", "gpu1"), ("ping", "gone"), ("dcgm", "gpu1 PCIe")):
        CheckResult.objects.create(
            node=node, name=name, device=device, status="fail", seen_at=now - timedelta(hours=25), changed_at=now
        )
    assert health(node, now)[2] == [("check", "dcgm gpu1 PCIe")]  # it was not run since
    Agent.objects.update(seen_at=now - timedelta(hours=24))
    reported = [about for kind, about in health(node, now)[2] if kind == "check"]
    assert reported == ["dcgm gpu1 PCIe", "gpu gpu1", "ping gone"]  # a silent agent tells nothing again


def test_a_fault_of_a_program_is_no_fault_of_the_node(node: Node, now: datetime) -> None:
    incident(node, now, is_user_fault=True)
    assert health(node, now)[0] == "healthy"


def test_a_fault_that_opens_and_closes_is_flapping_until_it_keeps_still(node: Node, now: datetime) -> None:
    for minutes in (12, 6):
        at = now - timedelta(minutes=minutes)
        incident(node, at, closed=at + timedelta(minutes=2))
    assert health(node, now) == ("degraded", ["healthy", "degraded"], [("flapping", "xid 94")])
    assert health(node, now + timedelta(minutes=5, seconds=50))[0] == "degraded"
    later = now + timedelta(minutes=7)
    Agent.objects.update(seen_at=later)
    assert health(node, later)[0] == "healthy"


def test_checks_that_fail_and_checks_that_move(node: Node, now: datetime) -> None:
    def result(name: str, status: str, device: str = "") -> None:
        CheckResult.objects.create(node=node, name=name, device=device, status=status, seen_at=now, changed_at=now)

    result("remapped", "fail", "GPU-0")
    result("ping", "pass")
    result("dcgm", "error")
    assert health(node, now) == ("degraded", ["degraded", "healthy"], [("check", "remapped GPU-0")])
    for minutes, (before, status) in enumerate((("", "pass"), ("pass", "fail"), ("fail", "pass"), ("pass", "fail"))):
        at = now - timedelta(minutes=5 - minutes)
        CheckChange.objects.create(node=node, name="ping", before=before, status=status, at=at)
    assert ("flapping", "ping") not in health(node, now)[2]  # a first result is no move
    CheckChange.objects.create(node=node, name="ping", before="fail", status="pass", at=now)
    assert ("flapping", "ping") in health(node, now)[2]


def test_silence_is_unknown_and_unhealthy_if_the_node_is_not_ready(node: Node, now: datetime) -> None:
    Agent.objects.update(seen_at=now - timedelta(minutes=3))
    assert health(node, now) == ("unknown", ["unknown"] * 2, [("silence", "silent")])
    Node.objects.update(ready=False)
    assert health(node, now)[0] == "unhealthy"


def test_inv_34_an_outdated_state_of_the_cluster_is_ignored(node: Node, now: datetime) -> None:
    Node.objects.update(ready=False)
    assert health(node, now)[2] == [("ready", "")]
    Cluster.objects.update(watched_at=now - timedelta(minutes=3))
    assert health(node, now)[0] == "healthy"


def test_the_queries_do_not_grow_with_the_nodes(node: Node, now: datetime, django_assert_num_queries) -> None:
    for number in range(20):
        other = Node.objects.create(
            cluster=node.cluster, name=f"more-{number}", created_at=now, in_cluster=True, ready=True
        )
        incident(other, now)
    nodes = list(Node.objects.select_related("cluster", "agent"))
    with django_assert_num_queries(4):
        found = queries.health_of(nodes, now=now)
    assert len(found) == 21
