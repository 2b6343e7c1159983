"""Gather the facts that decisions and steps need."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum

from kcover import actions, lifecycle
from kcover.decisions import decide, guards, match
from kcover.faults import nvlink5, xid
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import counts, needs_person

MAX_PAST_RESCUES = 100  # of one node that are considered


def situation(
    node: Node,
    incident: Incident,
    *,
    now: datetime,
    lock: bool = False,
    rules: tuple[match.Candidate, ...] | None = None,
    external_asked: bool = False,
    mode: tuple[str, str] | None = None,
) -> decide.Situation:
    """Every fact that the decision about one incident depends on.

    ``lock``: take the cluster's lock before counting, because the caller acts on the counts. ``rules``: candidates to
    use instead of those in force. ``external_asked``: see ``Situation``. ``mode``: the cluster's mode and the reason of
    a pause, if the caller has just read them with the node (``fleet.mode_beside``). If the answer does not depend on
    the guards, nothing is counted and nothing is locked.
    """
    rules = policies.candidates() if rules is None else rules
    settings = fleet.guards_of(node.cluster)
    facts = decide.Situation(
        now=now,
        fault=_fault(incident, rules, now=now),
        node=node_facts(node, incident, settings=settings, now=now),
        settings=settings,
        cluster=_cluster_facts(node.cluster, mode or fleet.mode_of(node.cluster)),
        rules=rules,
        external_asked=external_asked,
    )
    matched = decide.match_rules(facts)
    facts = replace(facts, matched=matched)
    if matched.candidate is None or not decide.needs_counts(facts, matched.candidate):
        return facts
    return _counted(facts, matched.candidate, node, incident, lock=lock)


def _counted(
    facts: decide.Situation, chosen: match.Candidate, node: Node, incident: Incident, *, lock: bool
) -> decide.Situation:
    """Add what the guards evaluate; settings of the cluster are read again once the lock is held."""
    cluster, fault = node.cluster, facts.fault
    locked = counts.lock(cluster, facts.settings, [chosen]) if lock else None
    if locked is not None:  # the previous holder of the lock may have changed the mode or the guards
        node.cluster = incident.cluster = cluster = locked
        settings = fleet.guards_of(cluster)
        if settings != facts.settings:
            node_now = node_facts(node, incident, settings=settings, now=facts.now)
            facts = replace(facts, settings=settings, node=node_now)
        before = facts.cluster
        if (cluster.mode, cluster.decision_mode, cluster.drills) != (before.mode, before.decision_mode, before.drills):
            facts = replace(facts, cluster=_cluster_facts(cluster, fleet.mode_of(cluster)))
    counted = counts.facts(
        node, settings=facts.settings, now=facts.now, kind=fault.kind, code=fault.code, rules=[chosen]
    )
    return replace(facts, counts=counted)


def _cluster_facts(cluster: Cluster, strictest: tuple[str, str]) -> decide.ClusterFacts:
    mode, pause_reason = strictest
    return decide.ClusterFacts(
        name=cluster.name,
        installation_mode=mode,
        mode=cluster.mode,
        pause_reason=pause_reason,
        decision_mode=cluster.decision_mode,
        drills=cluster.drills,
    )


def _fault(incident: Incident, rules: Sequence[match.Candidate], *, now: datetime) -> decide.FaultFacts:
    return decide.FaultFacts(
        kind=incident.kind,
        code=incident.code,
        cause=incident.cause,
        fatal=nvlink5.is_fatal(xid.parse_line(incident.message)),
        count=incident.count,
        seen_within=seen_within(incident, rules, now=now),
        drill=incident.drill,
        last_seen_at=incident.last_at,
    )


def seen_within(incident: Incident, rules: Sequence[match.Candidate], *, now: datetime) -> dict[int, int]:
    """Occurrences of the fault before ``now``, by window in seconds, for each window that a rule refers to."""
    seen = {}
    for seconds in match.windows(rules):
        events = incident.occurrences.filter(at__gte=now - timedelta(seconds=seconds), at__lte=now)
        seen[seconds] = events.aggregate(sum=Sum("count"))["sum"] or 1
    return seen


def node_facts(node: Node, incident: Incident, *, settings: guards.Settings, now: datetime) -> decide.NodeFacts:
    """What a decision depends on about the node, its past rescues included."""
    past = list(Rescue.objects.filter(node=node).order_by("-pk")[:MAX_PAST_RESCUES])
    open_rescue = next((rescue for rescue in past if rescue.state in lifecycle.OPEN_RESCUE), None)
    marked = next((rescue for rescue in past if rescue.marks), None)
    left = marked if marked and marked is not open_rescue else None
    people = needs_person.blocking_rescue(past, incident)
    return decide.NodeFacts(
        name=node.name,
        known=node.in_cluster,
        gpus=node.gpus,
        labels=node.labels,
        open_rescue=open_rescue.pk if open_rescue else None,
        left_to_people=people.pk if people else None,
        isolated_by=left.pk if left else None,
        isolated_plan=left.plan_hash if left else "",
        rebooted_since=_rebooted_since(node, incident),
        unshown_boot=_unshown_boot(node, incident),
        recent_rescues=repairs(past, actions.names(lambda spec: spec.mends), since=now - settings.repeats.window),
        reboots_for_code=repairs(
            past,
            {actions.reboot.SPEC.name},
            since=now - settings.ladder.window,
            code=f"{incident.kind} {incident.code}",
        )
        if settings.ladder.reboots is not None
        else 0,
    )


def _rebooted_since(node: Node, incident: Incident) -> bool:
    """Returns whether the boot of the fault is over, and nothing was seen in the present one (invariant 15).

    The watch tells: it showed that boot before the present one, which also covers faults that an agent kept for hours.
    The node's agent tells too, because the fault carries the agent's boot ID. Its later reports count only for faults
    that were decided before and held back: an agent delivers what it kept before it reports its present boot.
    """
    if not incident.boot_id:
        return False
    # An agent's silence carries the boot ID of its last report, but it is the silence of the present boot.
    if incident.boot_id in node.past_boots and incident.kind != "agent":
        return not incident.occurrences.filter(boot_id=node.boot_id).exists()
    if incident.decided_at is None:
        return False
    later = Agent.objects.filter(node=node, boot_seen_at__gt=incident.last_at).exclude(boot_id=incident.boot_id)
    return later.exists()


def _unshown_boot(node: Node, incident: Incident) -> str:
    """The boot of the fault, if it is unknown whether that boot has ended (invariant 15); else "".

    The watch shows another boot and never showed this one. The agent may be ahead of the watch, or deliver a fault of a
    boot that began and ended unseen. The next update of the watch or of the agent decides (``_rebooted_since``).
    """
    known = ("", node.boot_id, *node.past_boots)
    # An agent's silence is the silence of the present boot, whatever it reported last.
    if not node.boot_id or incident.boot_id in known or incident.kind == "agent":
        return ""
    return "" if incident.occurrences.filter(boot_id=node.boot_id).exists() else incident.boot_id


def repairs(past: Iterable[Rescue], steps: Collection[str], *, since: datetime, code: str = "") -> int:
    """How many of these steps are in the plans of automatic rescues that were opened since, for that code."""
    by_policy = [
        rescue.pk
        for rescue in past
        if rescue.origin != Rescue.Origin.MANUAL and rescue.opened_at >= since and code in ("", rescue.code)
    ]
    return Step.objects.filter(rescue__in=by_policy, name__in=steps).count() if by_policy else 0


def open_on(node: Node, *, lock: bool = False) -> Rescue | None:
    """The node's open rescue; there is at most one. ``lock``: nobody changes its row until the transaction ends."""
    rows = Rescue.objects.filter(node=node, state__in=lifecycle.OPEN_RESCUE)
    return (rows.select_for_update(of=("self",), no_key=True) if lock else rows).first()


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
    return Rescue.objects.filter(node=node).exclude(marks={}).order_by("-pk").first()


def at_odds() -> QuerySet[Node]:
    """Nodes without an open rescue whose marks differ between the watch and the rows, or that someone uncordoned
    despite the portal's mark.
    """
    rescues = Rescue.objects.filter(node=OuterRef("pk"))
    nodes = Node.objects.filter(in_cluster=True).exclude(Exists(rescues.filter(state__in=lifecycle.OPEN_RESCUE)))
    known, shown = Exists(rescues.exclude(marks={})), ~Q(marks={})
    lifted = Q(marks__changed__cordon=True) | Q(marks__before__unschedulable=True)
    return nodes.filter((known & ~shown) | (~known & shown) | (shown & lifted & Q(unschedulable=False)))


def due(*, now: datetime, limit: int = 200) -> list[tuple[int, int]]:
    """Rescues that a worker may claim, each with its token: due, and without a lease that still runs."""
    free = Q(lease_until__isnull=True) | Q(lease_until__lte=now)
    rows = Rescue.objects.filter(free, state__in=("waiting", "running"), due_at__lte=now).order_by("due_at")
    return list(rows.values_list("pk", "token")[:limit])


def to_withdraw(*, now: datetime, limit: int = 100) -> list[tuple[int, datetime | None]]:
    """Steps whose request is due for withdrawal, each with its due time."""
    rows = Step.objects.filter(withdraw_at__lte=now).order_by("withdraw_at")
    return list(rows.values_list("pk", "withdraw_at")[:limit])


def current_step(rescue: Rescue) -> Step | None:
    return rescue.steps.exclude(state__in=lifecycle.FINISHED_STEP).order_by("index").first()


def step_named(rescue: Rescue, name: str) -> Step | None:
    """The rescue's step of that name, if its plan has one; of two rounds the later."""
    return rescue.steps.filter(name=name).order_by("-index").first()


def undrained(rescue: Rescue) -> bool:
    """Returns whether the plan has a drain that did not finish; then nothing may be taken from the node's users."""
    drains = rescue.steps.filter(name=actions.drain.SPEC.name)
    return drains.exclude(state__in=lifecycle.FINISHED_STEP).exists()


def new_boot(rescue: Rescue) -> str:
    """The boot that the node came up in during the rescue, "" where it was not rebooted."""
    ready = step_named(rescue, actions.ready.SPEC.name)
    return ready.typed_progress.new_boot if ready is not None else ""


def active() -> QuerySet[Rescue]:
    """Open rescues with their nodes, clusters and steps."""
    return (
        Rescue.objects.filter(state__in=lifecycle.OPEN_RESCUE)
        .select_related("node", "cluster")
        .prefetch_related("steps")
    )
