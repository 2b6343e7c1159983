"""Counting what the guards weigh (``kcover.guards``): only what a cluster's settings ask for.

Whoever acts on the counts holds ``lock`` in the same transaction, so that two nodes that are judged at once do not both
see the last free place (invariant 29).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from kcover import decision, guards, lifecycle
from kcover.policy import matching
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Cluster, Maintenance, Node
from kcover_portal.incidents.models import Incident, JobSeen
from kcover_portal.rescue.models import Rescue, Step

# What tells the switch that a node hangs on: NVIDIA's topograph, then our own.
SWITCH_LABELS = ("network.topology.nvidia.com/leaf", "kcover.io/switch")
NO_SLOTS = guards.Slots(scope="", eligible=0, taken=0)
ISOLATING = tuple(sorted(decision.ISOLATING))


@dataclass(frozen=True, slots=True)
class Again:
    """A rescue whose isolation is weighed once more: the place it has had since it was opened is not counted.

    Places are given in the order of opening. Those of rescues opened after it are not counted either, until they have
    taken their node out or were let through ``since`` then: of two that wait for one place none waits for the other.
    """

    rescue: int
    since: datetime


def lock(cluster: Cluster, settings: guards.Settings, rules: Iterable[matching.Candidate]) -> bool:
    """Queues for the cluster's counts until the end of the transaction, if anything is counted that may run out; then
    True, and what was read of the cluster before is to be read again."""
    scarce = settings.breaker.enabled or settings.budget.limit is not None or settings.floor.percent is not None
    if not scarce and all(one.rule.budget is None for one in rules):
        return False
    # no_key: rows that refer to the cluster may be written meanwhile.
    Cluster.objects.select_for_update(no_key=True).values_list("pk").get(pk=cluster.pk)
    return True


def facts(
    node: Node,
    *,
    settings: guards.Settings,
    now: datetime,
    kind: str = "",
    code: str = "",
    rules: Iterable[matching.Candidate] = (),
    destructive: bool = False,
    again: Again | None = None,
) -> guards.Facts:
    """What surrounds the node now. ``kind`` and ``code`` name the fault at hand, "" where an operator asks for an act.

    ``destructive``: for the question before a call that takes work away; else for the one before an isolation.
    ``again``: for the rescue that was let through before, and begins only now.
    """
    cluster = node.cluster
    bounded = [one for one in rules if one.rule.budget is not None or one.rule.cooldown is not None]
    ended = Rescue.objects.filter(node=node, state__in=lifecycle.CLOSED_RESCUE).order_by("-closed_at")
    holds = taken(cluster, again=again).filter(node=node).exists()
    return guards.Facts(
        cluster=cluster.name,
        node=node.name,
        eligible=eligible(cluster).count(),
        isolated_lately=isolated(cluster, since=now - settings.breaker.window, but=node)
        if settings.breaker.enabled
        else 0,
        slots=_slots(node, settings.budget.by, again=again) if settings.budget.limit is not None else NO_SLOTS,
        pool=_pool(node, again=again)
        if settings.floor.percent is not None
        else guards.Pool(name=node.pool, eligible=0, healthy=0),
        labels=node.labels,
        serving=node.ready and not node.unschedulable and not holds,  # as the pool's healthy ones are counted
        holds_slot=holds,
        symptoms=_symptoms(node, kind, code, settings=settings, now=now) if kind and settings.storm.enabled else (),
        faulty=faulty(cluster, now=now) if destructive and settings.rate.enabled else guards.Faulty(),
        last_rescue_ended_at=ended.values_list("closed_at", flat=True).first() if settings.cooldown else None,
        maintenance=tuple(_windows(node, now=now)),
        rules={one.name: _rule(one, node, again=again) for one in bounded},
    )


def eligible(cluster: Cluster) -> QuerySet[Node]:
    """The nodes over which limits are counted: GPU nodes that the cluster has and that are not excluded."""
    rows = Node.objects.filter(cluster=cluster, known=True, gpus__gt=0)
    excluded = rows.filter(**{f"labels__{guards.EXCLUDE_LABEL}": "true"})
    return rows.exclude(pk__in=excluded.values("pk"))


def taken(cluster: Cluster, *, again: Again | None = None) -> QuerySet[Rescue]:
    """Rescues that hold a place: open ones, and those whose marks are still on their node (a stuck node too)."""
    rows = Rescue.objects.filter(Q(state__in=lifecycle.OPEN_RESCUE) | ~Q(marks={}), cluster=cluster)
    if again is None:
        return rows
    begun = ~Q(marks={}) | Q(isolating_at__gte=again.since)
    return rows.exclude(pk=again.rescue).filter(begun | Q(pk__lt=again.rescue))


def isolated(cluster: Cluster, *, since: datetime, but: Node | None = None) -> int:
    """Distinct nodes that were taken out of scheduling since, or are about to be, ``but`` one."""
    # A rescue that waits for a yes counts when it is opened, and once more when it begins.
    waiting = Q(isolating_at=None, opened_at__gte=since, state__in=lifecycle.OPEN_RESCUE)
    steps = Step.objects.filter(rescue=OuterRef("pk"), name__in=ISOLATING).exclude(state__in=("cancelled", "skipped"))
    rows = Rescue.objects.filter(Q(isolating_at__gte=since) | waiting, Exists(steps), cluster=cluster)
    if but is not None:
        rows = rows.exclude(node=but)
    return rows.values("node").distinct().count()


def _slots(node: Node, by: str, *, again: Again | None) -> guards.Slots:
    rows, scope = Node.objects.filter(cluster=node.cluster, known=True), f"cluster {node.cluster.name}"
    if by == "pool":
        rows, scope = rows.filter(pool=node.pool), f"pool {node.pool}"
    elif by.startswith("label:"):
        key = by.removeprefix("label:")
        value = node.labels.get(key)
        rows = rows.filter(**{f"labels__{key}": value}) if value is not None else rows.exclude(labels__has_key=key)
        scope = f"{key}={value or ''}"
    return _count(rows, node.cluster, scope=scope, again=again)


def _count(rows: QuerySet[Node], cluster: Cluster, *, scope: str, again: Again | None) -> guards.Slots:
    """The places of these nodes. One that a rule or a decision system took out keeps its place when its GPUs are gone
    or it is excluded since (invariant 36): it is as stuck as before. What people do to such nodes is not counted."""
    counted, out = rows.filter(pk__in=eligible(cluster).values("pk")), taken(cluster, again=again)
    stuck = Q(pk__in=out.exclude(origin=Rescue.Origin.MANUAL).values("node"))
    used = rows.filter(stuck | Q(pk__in=counted.filter(pk__in=out.values("node")).values("pk"))).count()
    return guards.Slots(scope=scope, eligible=counted.count(), taken=used)


def _pool(node: Node, *, again: Again | None) -> guards.Pool:
    rows = eligible(node.cluster).filter(pool=node.pool)
    out = taken(node.cluster, again=again).values("node")
    healthy = rows.filter(ready=True, unschedulable=False).exclude(pk__in=out)
    return guards.Pool(name=node.pool or "without a name", eligible=rows.count(), healthy=healthy.count())


def _symptoms(
    node: Node, kind: str, code: str, *, settings: guards.Settings, now: datetime
) -> tuple[guards.Symptom, ...]:
    """What the fault has in common with others, and on how many nodes.

    A storm that is open counts with all its nodes until a person closes it: that nobody looked is not its end.
    """
    storms = dict(
        Incident.objects.filter(cluster=node.cluster, node=None, kind=STORM, state="open").values_list("code", "scope")
    )

    def in_storm(trait: str, value: str) -> int:
        scope = storms.get(storm_code(trait, value), [])
        return len(scope) if node.name in scope else 0

    return tuple(
        guards.Symptom(trait=trait, value=value, nodes=max(_nodes(rows), in_storm(trait, value)))
        for trait, value, rows in _traits(node, kind, code, since=now - settings.storm.window)
    )


def _traits(node: Node, kind: str, code: str, *, since: datetime) -> Iterable[tuple[str, str, QuerySet[Incident]]]:
    """What a common cause would leave behind, and the incidents that show it."""
    lately = Incident.objects.filter(cluster=node.cluster, node__isnull=False, last_at__gte=since)
    yield "code", f"{kind} {code}", lately.filter(kind=kind, code=code)
    faults = lately.filter(program=False)
    versions = Agent.objects.filter(node__cluster=node.cluster).exclude(version="")
    mine = versions.filter(node=node).values_list("version", flat=True).first()
    if mine and versions.exclude(version=mine).exists():
        yield "agent_version", mine, faults.filter(node__agent__version=mine)
    key = next((key for key in SWITCH_LABELS if key in node.labels), None)
    if key is not None:
        yield "switch", node.labels[key], faults.filter(**{f"node__labels__{key}": node.labels[key]})
    for job in JobSeen.objects.filter(node=node, at__gte=since).exclude(job="").values_list("job", flat=True):
        there = JobSeen.objects.filter(job=job, at__gte=since, node__cluster=node.cluster)
        yield "job", job, faults.filter(node__in=there.values("node"))


def storm_nodes(node: Node, kind: str, code: str, *, symptom: guards.Symptom, since: datetime) -> list[str]:
    """The names of the nodes that show the symptom."""
    shared = (symptom.trait, symptom.value)
    rows = next(rows for trait, value, rows in _traits(node, kind, code, since=since) if (trait, value) == shared)
    return sorted(set(rows.values_list("node__name", flat=True)))


STORM = "storm"  # the kind of an incident that is about many nodes


def storm_code(trait: str, value: str) -> str:
    """What the incident of a storm is called."""
    return f"{trait} {value}"[:64]


def _nodes(rows: QuerySet[Incident]) -> int:
    return rows.values("node").distinct().count()


def faulty(cluster: Cluster, *, now: datetime) -> guards.Faulty:
    """Distinct nodes with a fault that was first seen within each window of the rate limit."""

    def within(**span: int) -> Count:
        return Count("node", distinct=True, filter=Q(opened_at__gte=now - timedelta(**span)))

    rows = Incident.objects.filter(
        cluster=cluster, node__isnull=False, program=False, opened_at__gte=now - timedelta(hours=6)
    )
    found = rows.aggregate(ten=within(minutes=10), hour=within(hours=1), six=within(hours=6))
    return guards.Faulty(ten_minutes=found["ten"], hour=found["hour"], six_hours=found["six"])


def _windows(node: Node, *, now: datetime) -> Iterable[guards.Maintenance]:
    for row in fleet.maintenance(node.cluster, now=now):
        scope, name = scope_of(row)
        yield guards.Maintenance(start=row.starts_at, end=row.ends_at, scope=scope, name=name, reason=row.reason)


def scope_of(row: Maintenance) -> tuple[str, str]:
    """What a window covers, in the words of the guards; a pool's or node's window is one of its own cluster."""
    if row.node:
        return "node", row.node
    if row.pool:
        return "pool", row.pool
    return ("cluster", row.cluster.name) if row.cluster is not None else ("all", "")


def _rule(candidate: matching.Candidate, node: Node, *, again: Again | None) -> guards.RuleFacts:
    """The places that a rule with a budget has, of all nodes that it selects, and when it last ended here."""
    slots = NO_SLOTS
    if candidate.rule.budget is not None:
        rows = eligible(node.cluster).values_list("labels", flat=True)
        selected = sum(matching.label_refusal(candidate.rule, labels) is None for labels in rows)
        # Whatever has become of the nodes that it took since (invariant 36).
        held = taken(node.cluster, again=again).filter(rule=candidate.name, node__known=True).values("node")
        slots = guards.Slots(scope=f"rule {candidate.name}", eligible=selected, taken=held.distinct().count())
    ended = Rescue.objects.filter(node=node, rule=candidate.name, state__in=lifecycle.CLOSED_RESCUE)
    return guards.RuleFacts(
        slots=slots, last_ended_at=ended.order_by("-closed_at").values_list("closed_at", flat=True).first()
    )
