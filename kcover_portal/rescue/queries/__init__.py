"""Reads of rescues, and the facts that decisions and steps need."""

from collections.abc import Collection
from datetime import datetime

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from kcover.plans import lifecycle
from kcover.values import turns
from kcover_portal.fleet.models import Node
from kcover_portal.lib.prepared import Prepared
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries.situations import (
    Situations as Situations,
    seen_within as seen_within,
    situation as situation,
)
from kcover_portal.runtime.services import claims

MAX_DUE = 200  # rescues that one sweep takes up
MAX_TO_WITHDRAW = 100  # steps


def open_on(node: Node, *, lock: bool = False) -> Rescue | None:
    """The node's open rescue; there is at most one. ``lock``: nobody changes its row until the transaction ends."""
    return (_LOCKED_ON_NODE if lock else _OPEN_ON_NODE).first(node=node.pk)


def open_on_nodes(nodes: Collection[Node]) -> dict[int, Rescue]:
    """The open rescues of these nodes by the node's key. One query."""
    if len(nodes) == 1:
        rows = [row for node in nodes for row in _OPEN_ON_NODE.rows(node=node.pk)]
    else:
        rows = list(Rescue.objects.order_by().filter(node__in=nodes, state__in=lifecycle.OPEN_RESCUE))
    return {row.node_id: row for row in rows}


def _open_on(node: int) -> QuerySet[Rescue]:
    return Rescue.objects.order_by().filter(node=node, state__in=lifecycle.OPEN_RESCUE)


_OPEN_ON_NODE = Prepared(_open_on, node=int)
_LOCKED_ON_NODE = Prepared(lambda node: _open_on(node).select_for_update(of=("self",), no_key=True), node=int)


def replaced() -> QuerySet[Rescue]:
    """Open rescues whose node's name belongs to another machine by now, as the watch shows.

    Rescues whose node another system has are left out: it may replace the machine (invariant 10), and the rescue
    notices when it continues.
    """
    rows = Rescue.objects.filter(state__in=lifecycle.OPEN_RESCUE, node__in_cluster=True)
    return rows.exclude(node_uid="").exclude(node__uid=F("node_uid")).exclude(hold=Rescue.Hold.EXTERNAL)


def is_replaced(rescue: Rescue) -> bool:
    """Returns whether the rescue is one of ``replaced``, by its node's row as it was read."""
    node, given = rescue.node, rescue.hold == Rescue.Hold.EXTERNAL
    return bool(node.in_cluster and rescue.node_uid and not given) and node.uid != rescue.node_uid


def marked_on(node: Node) -> Rescue | None:
    """The newest rescue that still has marks on the node."""
    return _MARKED_ON_NODE.first(node=node.pk)


_MARKED_ON_NODE = Prepared(
    lambda node: Rescue.objects.filter(node=node).exclude(marks={}).order_by("-pk")[:1], node=int
)


def at_odds() -> QuerySet[Node]:
    """Nodes without an open rescue whose marks differ between the watch and the rows, or that someone uncordoned
    despite the portal's mark.
    """
    rescues = Rescue.objects.filter(node=OuterRef("pk"))
    nodes = Node.objects.filter(in_cluster=True).exclude(Exists(rescues.filter(state__in=lifecycle.OPEN_RESCUE)))
    known, shown = Exists(rescues.exclude(marks={})), ~Q(marks={})
    lifted = Q(marks__changed__cordon=True) | Q(marks__before__unschedulable=True)
    # Few nodes have marks. The first condition finds them without a look-up for each node of the cluster.
    marked = shown | Q(pk__in=Rescue.objects.exclude(marks={}).values("node"))
    return nodes.filter(marked, (known & ~shown) | (~known & shown) | (shown & lifted & Q(unschedulable=False)))


def claimable(*, now: datetime) -> QuerySet[Rescue]:
    """Rescues that a worker may claim: due, and without a lease that still runs; in the order of their due times."""
    return due_rescues(now=now).filter(claims.free(now=now)).order_by("due_at", "pk")


def due_rescues(*, now: datetime) -> QuerySet[Rescue]:
    """Rescues whose time has come, also those that a worker has."""
    return Rescue.objects.filter(state__in=("waiting", "running"), due_at__lte=now)


def due(*, now: datetime) -> list[tuple[int, int]]:
    """The first of ``claimable``, each with its token. If not all fit, the clusters take turns."""
    rows = _DUE.rows(now=now)
    if len(rows) < MAX_DUE:
        return rows
    clusters = claimable(now=now).order_by("cluster").values_list("cluster", flat=True).distinct()
    return turns.in_turns([_DUE_IN_CLUSTER.rows(now=now, cluster=cluster) for cluster in clusters], limit=MAX_DUE)


_DUE = Prepared(lambda now: claimable(now=now).values_list("pk", "token")[:MAX_DUE], now=datetime)
_DUE_IN_CLUSTER = Prepared(
    lambda now, cluster: claimable(now=now).filter(cluster=cluster).values_list("pk", "token")[:MAX_DUE],
    now=datetime,
    cluster=int,
)


def with_withdrawal(*, now: datetime) -> QuerySet[Step]:
    """Steps whose request is due for withdrawal, in the order of their due times."""
    return Step.objects.filter(withdraw_at__lte=now).order_by("withdraw_at")


def to_withdraw(*, now: datetime) -> list[tuple[int, datetime | None]]:
    """The first of ``with_withdrawal``, each with its due time."""
    return _TO_WITHDRAW.rows(now=now)


_TO_WITHDRAW = Prepared(
    lambda now: with_withdrawal(now=now).values_list("pk", "withdraw_at")[:MAX_TO_WITHDRAW], now=datetime
)


def current_step(rescue: Rescue) -> Step | None:
    """The first step of the plan that is not finished."""
    return next((step for step in steps_of(rescue) if step.state not in lifecycle.FINISHED_STEP), None)


def steps_of(rescue: Rescue) -> list[Step]:
    """The steps of the plan, in order."""
    steps = _STEPS.rows(rescue=rescue.pk)
    for step in steps:
        step.rescue = rescue
    return steps


_STEPS = Prepared(lambda rescue: Step.objects.filter(rescue=rescue).order_by("index"), rescue=int)


def active() -> QuerySet[Rescue]:
    """Open rescues with their nodes, clusters and steps."""
    return (
        Rescue.objects.filter(state__in=lifecycle.OPEN_RESCUE)
        .select_related("node", "cluster")
        .prefetch_related("steps")
    )
