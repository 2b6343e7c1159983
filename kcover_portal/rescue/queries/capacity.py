"""The rows over which the guards' limits are counted: eligible nodes, slots in use, isolations, faulty nodes."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from kcover import actions
from kcover.decisions import guards
from kcover.decisions.guards import chance
from kcover.plans import lifecycle
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue, Step

LEARNING_PERIOD = timedelta(days=180)
MAX_FAULTS_LEARNED = 5_000  # faults, the newest ones

# By cluster: what was read, and what it taught.
_learned: dict[int, tuple[tuple[object, ...], guards.FaultHistory]] = {}


@dataclass(frozen=True, slots=True)
class Recheck:
    """A rescue whose isolation is evaluated again. The slot that it holds since it was opened is not counted.

    Slots are given in the order of opening. Rescues that were opened later count only if they have isolated their node
    or passed the guards since ``since``. So two rescues that wait for one slot never wait for each other.
    """

    rescue: int
    since: datetime


def eligible(cluster: Cluster | int) -> QuerySet[Node]:
    """The nodes over which limits are counted: GPU nodes that the cluster has and that are not excluded.

    Nodes before their first work are not in service, so they give no room to isolate others.
    """
    return not_excluded(Node.objects.filter(cluster=cluster, in_cluster=True, gpus__gt=0, not_ready_since=None))


def not_excluded(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """The nodes without the label that excludes them. One look at each node's labels, without a subquery."""
    excluded = Coalesce(KT(f"labels__{guards.EXCLUDE_LABEL}"), Value(""), output_field=TextField())
    return nodes.alias(excluded=excluded).exclude(excluded="true")


def taken(cluster: Cluster | int, *, recheck: Recheck | None = None) -> QuerySet[Rescue]:
    """Rescues that hold a slot: open ones, and those whose marks are still on their node, even if it is stuck."""
    rows = Rescue.objects.filter(Q(state__in=lifecycle.OPEN_RESCUE) | ~Q(marks={}), cluster=cluster)
    if recheck is None:
        return rows
    begun = ~Q(marks={}) | Q(isolating_at__gte=recheck.since)
    return rows.exclude(pk=recheck.rescue).filter(begun | Q(pk__lt=recheck.rescue))


def isolated_by_rules(cluster: Cluster, *, since: datetime, recheck: Recheck | None = None) -> QuerySet[Rescue]:
    """Rescues that rules or decision systems opened since then, and that isolate their node or are about to.

    A rescue that waits for a person before it isolates does not count: the guards are evaluated again when it begins.
    """
    rows = taken(cluster, recheck=recheck).filter(opened_at__gte=since).exclude(origin=Rescue.Origin.MANUAL)
    return rows.exclude(marks={}, isolating_at=None)


def isolated(cluster: Cluster, *, since: datetime) -> int:
    """Distinct nodes that were isolated since then or are about to be."""
    return isolating(cluster, since=since).values("node").distinct().count()


def isolating(cluster: Cluster | int, *, since: datetime) -> QuerySet[Rescue]:
    """Rescues that isolated their node since then, or are about to."""
    # A rescue that waits for approval counts when it is opened, and again when it begins.
    waiting = Q(isolating_at=None, opened_at__gte=since, state__in=lifecycle.OPEN_RESCUE)
    names = sorted(actions.names(lambda spec: spec.isolates))
    steps = Step.objects.filter(rescue=OuterRef("pk"), name__in=names).exclude(state__in=("cancelled", "skipped"))
    return Rescue.objects.filter(Q(isolating_at__gte=since) | waiting, Exists(steps), cluster=cluster)


def faulty(cluster: Cluster, *, now: datetime) -> guards.FaultyNodes:
    """Distinct nodes of the cluster whose fault was first seen within each window of the rate limit."""

    def within(**span: int) -> Count:
        return Count("node", distinct=True, filter=Q(opened_at__gte=now - timedelta(**span)))

    rows = Incident.objects.filter(
        cluster=cluster,
        node__in_cluster=True,
        is_user_fault=False,
        opened_at__gte=now - timedelta(hours=6),
    )
    found = rows.aggregate(ten=within(minutes=10), hour=within(hours=1), six=within(hours=6))
    return guards.FaultyNodes(ten_minutes=found["ten"], hour=found["hour"], six_hours=found["six"])


def past(cluster: Cluster, *, now: datetime, nodes: int) -> guards.FaultHistory:
    """The statistics of faults from earlier days, for a cluster with so many eligible nodes.

    The present day is left out, so that a burst does not raise the limit that is to catch it.
    """
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = max(today - LEARNING_PERIOD, cluster.created_at)
    if since >= today:
        return guards.FaultHistory()
    rows = Incident.objects.filter(
        cluster=cluster, node__in_cluster=True, is_user_fault=False, opened_at__gte=since, opened_at__lt=today
    )
    newest = rows.order_by("-opened_at", "-pk").values_list("opened_at", "node")[:MAX_FAULTS_LEARNED]
    state = rows.order_by().aggregate(number=Count("pk"), last=Max("pk"))
    key = (cluster.pk, since, today, nodes, state["number"], state["last"])
    if _learned.get(cluster.pk, ((), guards.FaultHistory()))[0] != key:
        faults = list(newest)[::-1]
        if len(faults) == MAX_FAULTS_LEARNED:
            since = faults[0][0]
        hours = int(nodes * ((today - since) / timedelta(hours=1)))
        _learned[cluster.pk] = key, chance.observe(faults, node_hours=hours)
    return _learned[cluster.pk][1]


def window_of(row: Maintenance, node: Node) -> guards.Maintenance:
    """A maintenance window as the guards see it for this node. Other nodes and pools are not named."""
    kind, name = row.scope.shown_for(name=node.name, pool=node.pool)
    if row.cluster is None:
        kind, name = "all", ""
    elif not kind:
        kind, name = "cluster", row.cluster.name
    covers = row.covers(node) if row.selection or row.members else None  # else the names tell
    return guards.Maintenance(
        start=row.starts_at, end=row.ends_at, scope=kind, name=name, reason=row.reason, covers=covers
    )
