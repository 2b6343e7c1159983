"""A cluster with two pools, and rows of every kind about a node of each and about the whole cluster."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.test import Client

from kcover import reasons
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import User
from kcover_portal.checks.models import CheckRun, CheckTarget, ValidatedNode, Validation
from kcover_portal.fleet.models import CheckResult, Cluster, Maintenance, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.parts.models import Part, Placement
from kcover_portal.preflight.models import PairPlan, PairTest, PreflightReport, PreflightRun
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Approval, Rescue
from kcover_portal.sources.models import Source
from tests.portal.api.conftest import add_node, add_story

PASSWORD = "long-enough-1"
OURS, THEIRS = "ours-01", "theirs-99"
SECRET = "theirs"  # part of everything that belongs to the other pool


@dataclass(frozen=True)
class TwoPools:
    """The rows by the node that they are about; ``whole``: rows of the cluster, by kind."""

    cluster: Cluster
    nodes: dict[str, Node]
    rescues: dict[str, Rescue]
    incidents: dict[str, Incident]
    whole: dict[str, Any]


def make(now: datetime) -> TwoPools:
    """Creates the rows."""
    broken = reasons.of("watch_failed", error=f"node {THEIRS} is malformed")
    cluster = Cluster.objects.create(name="c1", created_at=now, watch_error=broken.to_json())
    nodes = {
        OURS: add_node(cluster, OURS, now, pool="red"),
        THEIRS: add_node(cluster, THEIRS, now, pool="blue-of-theirs", unschedulable=True),
    }
    rescues = {name: _story(node, now) for name, node in nodes.items()}
    incidents = {name: Incident.objects.get(node=node) for name, node in nodes.items()}
    return TwoPools(cluster, nodes, rescues, incidents, _whole(cluster, nodes, now))


def _story(node: Node, now: datetime) -> Rescue:
    rescue = add_story(node, now)
    waits = {"hold": "approval", "gate": 1, "expires_at": now + timedelta(hours=1), "reason": f"about {node.name}"}
    Rescue.objects.filter(pk=rescue.pk).update(**waits)
    Approval.objects.filter(rescue=rescue).update(approved=False, reason=f"look at {node.name} first")
    CheckResult.objects.create(
        node=node, name="fans", device=f"fan of {node.name}", status="fail", seen_at=now, changed_at=now
    )
    _past_rescue(node, now)
    Repair.objects.create(
        cluster=node.cluster,
        node=node,
        node_name=node.name,
        opened_by="user:bo",
        vendor=f"vendor of {node.name}",
        opened_because=[reasons.of("repair_reported_by_because", by="bo", why=f"about {node.name}").to_json()],
        reported_at=now - timedelta(days=2),
    )
    _parts(node, now)
    rescue.refresh_from_db()
    return rescue


def _parts(node: Node, now: datetime) -> None:
    """A part of the node, and one that was in both nodes, flagged in each."""
    own, _ = Part.objects.get_or_create(kind="gpu", serial=f"part of {node.name}", defaults={"first_seen_at": now})
    shared, _ = Part.objects.get_or_create(kind="nic", serial="moved", defaults={"first_seen_at": now})
    where = {"cluster": node.cluster, "node": node, "node_name": node.name, "slot": "0000:4e:00"}
    flag = reasons.of("part_on_two_nodes", serial="moved").to_json()
    Placement.objects.create(part=own, since=now, device=f"GPU-{node.name}", **where)
    Placement.objects.create(part=shared, since=now, flags=[flag], flagged_at=now, doubt="conflict", **where)


def _past_rescue(node: Node, now: datetime) -> Rescue:
    """A rescue that left its node to people."""
    return Rescue.objects.create(
        cluster=node.cluster,
        node=node,
        origin="manual",
        requested_by="user:bo",
        reason=f"about {node.name}",
        plan_hash="old",
        state="failed",
        outcome="escalated",
        needs_human=True,
        opened_at=now - timedelta(hours=2),
        closed_at=now - timedelta(hours=1),
    )


def _whole(cluster: Cluster, nodes: dict[str, Node], now: datetime) -> dict[str, Any]:
    storm = Incident.objects.create(
        cluster=cluster,
        kind="storm",
        code="code xid 62",
        scope=list(nodes),
        trait="code",
        symptom_kind="xid",
        symptom="62",
        opened_at=now,
        last_at=now,
    )
    run = CheckRun.objects.create(
        cluster=cluster, checks=["ping"], level=1, total=2, requested_by="user:theirs", requested_at=now
    )
    for place, node in enumerate(nodes.values()):
        CheckTarget.objects.create(run=run, node=node, place=place, batch=0)
    validation = Validation.objects.create(
        cluster=cluster, profile="full", document={}, run=run, requested_by="user:theirs", requested_at=now
    )
    for node in nodes.values():
        ValidatedNode.objects.create(validation=validation, node=node)
    preflight = PreflightRun.objects.create(
        cluster=cluster,
        namespace="theirs",
        workload="train",
        state="complete",
        received=2,
        size=2,
        slow=[THEIRS],
        first_at=now,
        last_at=now,
        due_at=now,
    )
    report = {"node_name": THEIRS}
    PreflightReport.objects.create(run=preflight, node=nodes[THEIRS], body=report, at=now)
    plan = PairPlan.objects.create(
        cluster=cluster,
        rounds=1,
        threshold=350,
        gpus=8,
        slow=[THEIRS],
        state="finished",
        requested_by="user:theirs",
        requested_at=now,
    )
    PairTest.objects.create(plan=plan, place=0, round=1, first=nodes[THEIRS], second=nodes[OURS], state="failed")
    Source.objects.create(  # it was never read, so the page System names it
        name="logs-of-theirs",
        kind="loki",
        cluster=cluster,
        url="https://theirs.example",
        created_at=now - timedelta(days=1),
    )
    window = Maintenance.objects.create(
        cluster=cluster,
        pool="blue-of-theirs",
        starts_at=now - timedelta(hours=1),
        ends_at=now + timedelta(days=3650),
        reason=f"moving {THEIRS}",
        created_by="user:theirs",
    )
    return {
        "storm": storm,
        "check-run": run,
        "validation": validation,
        "preflight-run": preflight,
        "preflight-plan": plan,
        "window": window,
    }


def bound(name: str, role: str, cluster: Cluster, pool: str, now: datetime) -> tuple[User, Client]:
    """A signed-in person with a role in one pool."""
    user = accounts.make_user(
        name, password=PASSWORD, role=role, cluster=cluster, pool=pool, created_by="test", now=now
    )
    client = Client(raise_request_exception=True)
    client.force_login(user)
    return user, client


def body_of(response: Any) -> str:
    """The whole body, also if it is streamed."""
    content = b"".join(response.streaming_content) if response.streaming else response.content
    return content.decode() + json.dumps(dict(response.headers))
