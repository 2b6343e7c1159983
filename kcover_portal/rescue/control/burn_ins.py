"""Begin burn-ins: the portal validates new nodes before their first work, where the cluster's setting says so.

A burn-in is a rescue: it has the same modes, approvals, guards, lease and audit log.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from django.db import transaction

from kcover import actors, audit, reasons
from kcover.decisions import guards
from kcover.nodes import readiness_taint
from kcover.plans import plan
from kcover.values import limits
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.control.requests import NEEDS_APPROVAL
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import burn_ins, counts

log = logging.getLogger(__name__)
# The portal adds the taint to no more nodes of a pool at a time. They leave the count of eligible nodes, so the floor
# of the pool alone would not protect one in which all machines look new.
TAINTED_SHARE: Final = limits.Limit(percent=25)


def begin_due(*, now: datetime) -> list[Rescue]:
    """Begins the burn-ins that are due in all clusters; returns them."""
    made: list[Rescue] = []
    for cluster in Cluster.objects.exclude(burn_in=Cluster.BurnIn.OFF):
        made += begin_on(cluster, burn_ins.due(cluster)[: burn_ins.MAX_DUE], now=now)
    return made


def begin_new(changed: Iterable[Node], *, now: datetime) -> list[Rescue]:
    """Begins the burn-ins of nodes that the watch has just seen, before they get work."""
    nodes = [node for node in changed if node.not_ready_since is not None or node.machine_since is not None]
    made: list[Rescue] = []
    if not nodes:
        return made
    for cluster in Cluster.objects.filter(pk__in={node.cluster_id for node in nodes}).exclude(burn_in="off"):
        made += begin_on(cluster, burn_ins.due(cluster).filter(pk__in=[node.pk for node in nodes]), now=now)
    return made


def begin_on(cluster: Cluster, nodes: Iterable[Node], *, now: datetime) -> list[Rescue]:
    """Begins the burn-ins of these nodes, as far as mode and guards allow it."""
    if fleet.mode_of(cluster)[0] in fleet.MODES_WITHOUT_WRITES:
        return []
    begun = (_begin(node, now=now) for node in nodes)
    return [rescue for rescue in begun if rescue is not None]


def _begin(node: Node, *, now: datetime) -> Rescue | None:
    """Opens the rescue; None if something changed since the nodes were read, or a guard holds it back."""
    with transaction.atomic(), ledger.last():
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        cluster = Cluster.objects.get(pk=node.cluster_id)
        row = burn_ins.due(cluster).filter(pk=node.pk).first()
        mode, _ = fleet.mode_now(cluster)
        if row is None or mode in fleet.MODES_WITHOUT_WRITES:
            return None
        row.cluster = cluster
        if row.not_ready_since is not None:  # out of service already, so no limit is touched
            return None if _is_in_maintenance(row, now=now) else _open(row, mode=mode, now=now)
        if _is_pool_full(row):
            log.debug("%s: no burn-in of %s yet: %s of its pool are in one", cluster.name, row.name, TAINTED_SHARE)
            return None
        settings = fleet.guards_of(cluster)
        counts.lock(cluster, settings, ())
        facts = counts.facts(row, settings=settings, now=now)
        verdict = guards.isolation(settings, facts, now=now)
        if verdict.held:
            log.debug("%s: no burn-in of %s yet: %s", cluster.name, row.name, reasons.both(*verdict.held))
            return None
        return _open(row, mode=mode, now=now, figures=guards.figures(settings, facts, act=guards.ISOLATION))


def _is_in_maintenance(node: Node, *, now: datetime) -> bool:
    windows = fleet.maintenance(node.cluster, now=now).filter(starts_at__lte=now)
    return any(window.covers(node) for window in windows)


def _is_pool_full(node: Node) -> bool:
    """Returns whether so many nodes of the pool are before their first work that the portal adds no taint.

    Part of the caller's transaction: two nodes must not take the last place.
    """
    Cluster.objects.select_for_update(no_key=True).get(pk=node.cluster_id)
    return burn_ins.in_burn_in(node) >= TAINTED_SHARE.of(burn_ins.gpu_nodes_of_pool(node).count())


def _open(node: Node, *, mode: str, now: datetime, figures: Mapping[str, Any] | None = None) -> Rescue:
    """Opens the rescue. ``figures``: those of the guards that allow the taint; None if the node has it."""
    profile = node.cluster.burn_in_profile
    because = reasons.of("burn_in_of_new", profile=profile)
    if figures is None:
        because = reasons.of("burn_in_of_tainted", taint=readiness_taint.KEY, profile=profile)
    created = create.create_rescue(
        node,
        plan.burn_in(profile, taints=figures is not None),
        now=now,
        origin=Rescue.Origin.MANUAL,
        requested_by=actors.SYSTEM,
        requesters=[actors.SYSTEM],
        requester_kind=Rescue.Requester.SYSTEM,
        opened_because=because.to_json(),
        **create.initial_state(dict(NEEDS_APPROVAL) if mode == "approve" else {}, lease_until=None, now=now),
    )
    drafts = list(created.drafts)
    if figures is not None:
        passed = audit.GuardPassed(rescue=created.rescue.pk, node=node.name, act=guards.ISOLATION, figures=figures)
        drafts.append(ledger.Draft(act=passed, actor=actors.SYSTEM, at=now))
    ledger.append(node.cluster.name, drafts)
    return created.rescue
