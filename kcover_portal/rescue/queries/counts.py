"""Count what the guards evaluate (``kcover.decisions.guards``), as far as a cluster's settings require it.

A caller that acts on the counts holds ``lock`` in the same transaction. Otherwise two nodes that are decided at once
would both see the last free slot (invariant 29).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from kcover import actions, lifecycle
from kcover.decisions import guards, match
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import symptoms
from kcover_portal.rescue.queries.numbers import number_of

NO_SLOTS = guards.Slots(scope="", eligible=0, taken=0)


@dataclass(frozen=True, slots=True)
class Recheck:
    """A rescue whose isolation is evaluated again. The slot that it holds since it was opened is not counted.

    Slots are given in the order of opening. Rescues that were opened later count only if they have isolated their node
    or passed the guards since ``since``. So two rescues that wait for one slot never wait for each other.
    """

    rescue: int
    since: datetime


def lock(cluster: Cluster, settings: guards.Settings, rules: Iterable[match.Candidate]) -> Cluster | None:
    """Locks the cluster's counts until the end of the transaction, if a limited resource is counted.

    Returns the cluster's row as it is under the lock, because its settings may have changed; None without a lock.
    """
    scarce = settings.breaker.enabled or settings.budget.limit is not None or settings.floor.percent is not None
    if not scarce and all(candidate.rule.budget is None for candidate in rules):
        return None
    # no_key: rows that refer to the cluster may be written meanwhile.
    return Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)


def facts(
    node: Node,
    *,
    settings: guards.Settings,
    now: datetime,
    kind: str = "",
    code: str = "",
    rules: Iterable[match.Candidate] = (),
    destructive: bool = False,
    recheck: Recheck | None = None,
) -> guards.Facts:
    """The node and its surroundings now. ``kind``, ``code``: the fault at hand, "" if an operator requests an act.

    ``destructive``: for the guards before a call that takes work away; else for those before an isolation.
    ``recheck``: the rescue that passed the guards before and begins only now.
    """
    cluster = node.cluster
    bounded = [it for it in rules if it.rule.budget is not None or it.rule.cooldown is not None]
    ended = Rescue.objects.filter(node=node, state__in=lifecycle.CLOSED_RESCUE).order_by("-closed_at")
    storm = settings.storm if kind and settings.storm.enabled else None
    shown = symptoms.Fault(node=node, kind=kind, code=code, since=now - storm.window) if storm else None
    numbers = _numbers(node, settings=settings, now=now, fault=shown, recheck=recheck)
    holds = numbers["holds_slot"]
    return guards.Facts(
        cluster=cluster.name,
        node=node.name,
        eligible=numbers["eligible"],
        isolated_lately=numbers.get("isolated_lately", 0),
        slots=_slots(node, settings.budget.by, recheck=recheck) if settings.budget.limit is not None else NO_SLOTS,
        pool=_pool(node, recheck=recheck)
        if settings.floor.percent is not None
        else guards.Pool(name=node.pool, eligible=0, healthy=0),
        labels=node.labels,
        serving=node.ready and not node.unschedulable and not holds,  # as the pool's healthy ones are counted
        holds_slot=holds,
        symptoms=symptoms.of(shown, numbers) if shown else (),
        faulty=faulty(cluster, now=now) if destructive and settings.rate.enabled else guards.Faulty(),
        last_rescue_ended_at=ended.values_list("closed_at", flat=True).first() if settings.cooldown else None,
        maintenance=tuple(_windows(node, now=now)) if numbers["windows"] else (),
        rules={it.name: _rule(it, node, recheck=recheck) for it in bounded},
    )


def _numbers(
    node: Node, *, settings: guards.Settings, now: datetime, fault: symptoms.Fault | None, recheck: Recheck | None
) -> Mapping[str, Any]:
    """What the guards always or nearly always count, and what tells whether more must be read, in one statement."""
    cluster = node.cluster
    wanted: dict[str, Any] = {
        "eligible": number_of(eligible(cluster)),
        "holds_slot": Exists(taken(cluster, recheck=recheck).filter(node=node)),
        "windows": Exists(fleet.maintenance(cluster, now=now)),
    }
    if settings.breaker.enabled:
        lately = _isolating(cluster, since=now - settings.breaker.window).exclude(node=node)
        wanted["isolated_lately"] = number_of(lately, "node")
    if fault is not None:
        wanted |= symptoms.numbers(fault)
    return Cluster.objects.filter(pk=cluster.pk).values(**wanted).get()


def eligible(cluster: Cluster) -> QuerySet[Node]:
    """The nodes over which limits are counted: GPU nodes that the cluster has and that are not excluded."""
    rows = Node.objects.filter(cluster=cluster, in_cluster=True, gpus__gt=0)
    excluded = rows.filter(**{f"labels__{guards.EXCLUDE_LABEL}": "true"})
    return rows.exclude(pk__in=excluded.values("pk"))


def taken(cluster: Cluster, *, recheck: Recheck | None = None) -> QuerySet[Rescue]:
    """Rescues that hold a slot: open ones, and those whose marks are still on their node, even if it is stuck."""
    rows = Rescue.objects.filter(Q(state__in=lifecycle.OPEN_RESCUE) | ~Q(marks={}), cluster=cluster)
    if recheck is None:
        return rows
    begun = ~Q(marks={}) | Q(isolating_at__gte=recheck.since)
    return rows.exclude(pk=recheck.rescue).filter(begun | Q(pk__lt=recheck.rescue))


def isolated(cluster: Cluster, *, since: datetime) -> int:
    """Distinct nodes that were isolated since then or are about to be."""
    return _isolating(cluster, since=since).values("node").distinct().count()


def _isolating(cluster: Cluster, *, since: datetime) -> QuerySet[Rescue]:
    """Rescues that isolated their node since then, or are about to."""
    # A rescue that waits for approval counts when it is opened, and again when it begins.
    waiting = Q(isolating_at=None, opened_at__gte=since, state__in=lifecycle.OPEN_RESCUE)
    isolating = sorted(actions.names(lambda spec: spec.isolates))
    steps = Step.objects.filter(rescue=OuterRef("pk"), name__in=isolating).exclude(state__in=("cancelled", "skipped"))
    return Rescue.objects.filter(Q(isolating_at__gte=since) | waiting, Exists(steps), cluster=cluster)


def _slots(node: Node, by: str, *, recheck: Recheck | None) -> guards.Slots:
    rows, scope = Node.objects.filter(cluster=node.cluster, in_cluster=True), f"cluster {node.cluster.name}"
    if by == "pool":
        rows, scope = rows.filter(pool=node.pool), f"pool {node.pool}"
    elif by.startswith("label:"):
        key = by.removeprefix("label:")
        value = node.labels.get(key)
        rows = rows.filter(**{f"labels__{key}": value}) if value is not None else rows.exclude(labels__has_key=key)
        scope = f"{key}={value or ''}"
    return _count(rows, node.cluster, scope=scope, recheck=recheck)


def _count(rows: QuerySet[Node], cluster: Cluster, *, scope: str, recheck: Recheck | None) -> guards.Slots:
    """The slots over these nodes.

    A node that a rule or a decision system isolated keeps its slot when its GPUs disappear or it is excluded later,
    because it is as stuck as before (invariant 36). What people do to such nodes is not counted.
    """
    counted, out = rows.filter(pk__in=eligible(cluster).values("pk")), taken(cluster, recheck=recheck)
    stuck = Q(pk__in=out.exclude(origin=Rescue.Origin.MANUAL).values("node"))
    used = rows.filter(stuck | Q(pk__in=counted.filter(pk__in=out.values("node")).values("pk"))).count()
    return guards.Slots(scope=scope, eligible=counted.count(), taken=used)


def _pool(node: Node, *, recheck: Recheck | None) -> guards.Pool:
    rows = eligible(node.cluster).filter(pool=node.pool)
    out = taken(node.cluster, recheck=recheck).values("node")
    healthy = rows.filter(ready=True, unschedulable=False).exclude(pk__in=out)
    return guards.Pool(name=node.pool or "without a name", eligible=rows.count(), healthy=healthy.count())


def faulty(cluster: Cluster, *, now: datetime) -> guards.Faulty:
    """Distinct nodes whose fault was first seen within each window of the rate limit."""

    def within(**span: int) -> Count:
        return Count("node", distinct=True, filter=Q(opened_at__gte=now - timedelta(**span)))

    rows = Incident.objects.filter(
        cluster=cluster, node__isnull=False, is_user_fault=False, opened_at__gte=now - timedelta(hours=6)
    )
    found = rows.aggregate(ten=within(minutes=10), hour=within(hours=1), six=within(hours=6))
    return guards.Faulty(ten_minutes=found["ten"], hour=found["hour"], six_hours=found["six"])


def _windows(node: Node, *, now: datetime) -> Iterable[guards.Maintenance]:
    for row in fleet.maintenance(node.cluster, now=now):
        scope, name = scope_of(row)
        yield guards.Maintenance(start=row.starts_at, end=row.ends_at, scope=scope, name=name, reason=row.reason)


def scope_of(row: Maintenance) -> tuple[str, str]:
    """The scope and name that a maintenance window covers, as the guards name them."""
    if row.node:
        return "node", row.node
    if row.pool:
        return "pool", row.pool
    return ("cluster", row.cluster.name) if row.cluster is not None else ("all", "")


def _rule(candidate: match.Candidate, node: Node, *, recheck: Recheck | None) -> guards.RuleFacts:
    """The slots of a rule with a budget over all nodes that it selects, and when its last rescue of this node ended."""
    slots = NO_SLOTS
    if candidate.rule.budget is not None:
        rows = eligible(node.cluster).values_list("labels", flat=True)
        selected = sum(match.label_refusal(candidate.rule, labels) is None for labels in rows)
        # These nodes count whatever has become of them since (invariant 36).
        held = taken(node.cluster, recheck=recheck).filter(rule=candidate.name, node__in_cluster=True).values("node")
        slots = guards.Slots(scope=f"rule {candidate.name}", eligible=selected, taken=held.distinct().count())
    ended = Rescue.objects.filter(node=node, rule=candidate.name, state__in=lifecycle.CLOSED_RESCUE)
    return guards.RuleFacts(
        slots=slots, last_ended_at=ended.order_by("-closed_at").values_list("closed_at", flat=True).first()
    )
