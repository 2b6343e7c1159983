"""Gathering the facts that a decision or a step needs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery, Sum

from kcover import decision, guards, lifecycle, nvlink5, plan, xid
from kcover.policy import matching
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.rescue.queries import counts

HISTORY = 100  # rescues of one node that are looked back on


def situation(
    node: Node,
    incident: Incident,
    *,
    now: datetime,
    lock: bool = False,
    rules: tuple[matching.Candidate, ...] | None = None,
) -> decision.Situation:
    """Every fact that the judgement of one incident depends on. ``lock``: whoever acts on it queues for the counts.
    ``rules``: others than those in force, to be tried out.

    Nothing is counted, and nobody queues, where something else has the word before the guards: most of what is judged
    again and again waits for a person, a pause or another rescue.
    """
    rules = policies.candidates() if rules is None else rules
    settings = fleet.guards_of(node.cluster)
    found = decision.Situation(
        now=now,
        fault=_fault(incident, rules, now=now),
        node=node_facts(node, incident, settings=settings, now=now),
        settings=settings,
        cluster=_cluster_facts(node.cluster),
        rules=rules,
    )
    return _counted(found, node, incident, lock=lock) if decision.asks_guards(found) else found


def _counted(found: decision.Situation, node: Node, incident: Incident, *, lock: bool) -> decision.Situation:
    """With what the guards weigh; by the cluster as it is once nobody else counts."""
    cluster, fault = node.cluster, found.fault
    chosen = _chosen(node, fault, found.rules)
    bounded = [chosen] if chosen is not None else []
    if lock and counts.lock(cluster, found.settings, bounded):
        cluster.refresh_from_db()  # whoever had the lock before may have changed the mode or the guards
        settings = fleet.guards_of(cluster)
        if settings != found.settings:
            facts = node_facts(node, incident, settings=settings, now=found.now)
            found = replace(found, settings=settings, node=facts)
        said = found.cluster
        if (cluster.mode, cluster.decision_mode, cluster.drills) != (said.mode, said.decision_mode, said.drills):
            found = replace(found, cluster=_cluster_facts(cluster))
    counted = counts.facts(
        node, settings=found.settings, now=found.now, kind=fault.kind, code=fault.code, rules=bounded
    )
    return replace(found, counts=counted)


def _cluster_facts(cluster: Cluster) -> decision.ClusterFacts:
    mode, pause_reason = fleet.mode_of(cluster)
    return decision.ClusterFacts(
        name=cluster.name,
        installation_mode=mode,
        mode=cluster.mode,
        pause_reason=pause_reason,
        decision_mode=cluster.decision_mode,
        drills=cluster.drills,
    )


def _fault(incident: Incident, rules: Sequence[matching.Candidate], *, now: datetime) -> decision.FaultFacts:
    return decision.FaultFacts(
        kind=incident.kind,
        code=incident.code,
        cause=incident.cause,
        fatal=nvlink5.fatal(xid.parse_line(incident.message)),
        count=incident.count,
        seen_within=seen_within(incident, rules, now=now),
        drill=incident.drill,
        last_seen_at=incident.last_at,
    )


def seen_within(incident: Incident, rules: Sequence[matching.Candidate], *, now: datetime) -> dict[int, int]:
    """How often the fault was seen in the last so many seconds before ``now``, for each window that a rule asks for."""
    seen = {}
    for seconds in matching.windows(rules):
        events = incident.events.filter(at__gte=now - timedelta(seconds=seconds), at__lte=now)
        seen[seconds] = events.aggregate(sum=Sum("count"))["sum"] or 1
    return seen


def _chosen(node: Node, fault: decision.FaultFacts, rules: Sequence[matching.Candidate]) -> matching.Candidate | None:
    """The rule that will match; nothing is counted, and no lock taken, for a fault that no rule means."""
    chosen, _ = matching.match(
        rules,
        kind=fault.kind,
        code=fault.code,
        cause=fault.cause,
        labels=node.labels,
        fatal=fault.fatal,
        seen_within=fault.seen_within,
    )
    return chosen


def node_facts(node: Node, incident: Incident, *, settings: guards.Settings, now: datetime) -> decision.NodeFacts:
    """What a decision may know of the node, its rescues included."""
    past = list(Rescue.objects.filter(node=node).order_by("-pk")[:HISTORY])
    open_rescue = next((one for one in past if one.state in lifecycle.OPEN_RESCUE), None)
    marked = next((one for one in past if one.marks), None)
    left = marked if marked and marked is not open_rescue else None
    people = _left_to_people(past, incident)
    return decision.NodeFacts(
        name=node.name,
        known=node.known,
        gpus=node.gpus,
        labels=node.labels,
        open_rescue=open_rescue.pk if open_rescue else None,
        left_to_people=people.pk if people else None,
        isolated_by=left.pk if left else None,
        isolated_plan=left.plan_hash if left else "",
        rebooted_since=_rebooted_since(node, incident),
        unshown_boot=_unshown_boot(node, incident),
        recent_rescues=repairs(past, plan.MENDING, since=now - settings.repeats.window),
        reboots_for_code=repairs(
            past, {"reboot"}, since=now - settings.ladder.window, code=f"{incident.kind} {incident.code}"
        )
        if settings.ladder.reboots is not None
        else 0,
    )


def _rebooted_since(node: Node, incident: Incident) -> bool:
    """Whether the boot that the fault was seen in is over, and nothing was seen in the present one (invariant 15).

    By the watch, which showed that boot before this one: so it is known of what an agent kept for hours, too. And by
    the node's agent, whose word the boot id of the sighting is; that is asked only of what was judged before and held
    back, since an agent tells what it kept before it says in which boot it is.
    """
    if not incident.boot_id:
        return False
    # An agent's silence has the boot id of its last word: it is the silence of the present boot.
    if incident.boot_id in node.past_boots and incident.kind != "agent":
        return not incident.events.filter(boot_id=node.boot_id).exists()
    if incident.judged_at is None:
        return False
    later = Agent.objects.filter(node=node, boot_seen_at__gt=incident.last_at).exclude(boot_id=incident.boot_id)
    return later.exists()


def _unshown_boot(node: Node, incident: Incident) -> str:
    """The boot that the fault was seen in, where it is not known whether it is over (invariant 15); else "".

    The watch shows another one, and never showed this: the agent may be ahead of the watch, or tell what it kept from a
    boot that began and ended while nobody looked. The watch's next word tells, or the agent's (``_rebooted_since``).
    """
    known = ("", node.boot_id, *node.past_boots)
    # An agent's silence is the silence of the present boot, whatever it said last.
    if not node.boot_id or incident.boot_id in known or incident.kind == "agent":
        return ""
    return "" if incident.events.filter(boot_id=node.boot_id).exists() else incident.boot_id


def repairs(past: Iterable[Rescue], steps: Collection[str], *, since: datetime, code: str = "") -> int:
    """How many of these steps are in the plans of rescues that were opened since, not by a person, for that code."""
    by_policy = [
        one.pk
        for one in past
        if one.origin != Rescue.Origin.MANUAL and one.opened_at >= since and code in ("", one.code)
    ]
    return Step.objects.filter(rescue__in=by_policy, name__in=steps).count() if by_policy else 0


def asking() -> QuerySet[Decision]:
    """The newest decisions about open faults that ask for a person: what automation may do has not helped."""
    newest = Decision.objects.filter(incident=OuterRef("incident")).order_by("-pk").values("pk")[:1]
    # The rule that matched is the first reason, what holds it back the second.
    for_a_person = Q(because__1__code=decision.ASKING[0])
    for code in decision.ASKING[1:]:
        for_a_person |= Q(because__1__code=code)
    return Decision.objects.filter(for_a_person, pk=Subquery(newest), answer="hold", incident__state="open")


def open_on(node: Node, *, lock: bool = False) -> Rescue | None:
    """The node's open rescue; there is at most one. ``lock``: nobody changes its row until the transaction ends."""
    rows = Rescue.objects.filter(node=node, state__in=lifecycle.OPEN_RESCUE)
    return (rows.select_for_update(of=("self",), no_key=True) if lock else rows).first()


def replaced() -> QuerySet[Rescue]:
    """Open rescues under whose node's name the watch shows another machine than the one that they were opened for.

    Not those whose node another system has: what it does with the machine is its business until it is done (invariant
    10), and the rescue finds out when it goes on.
    """
    rows = Rescue.objects.filter(state__in=lifecycle.OPEN_RESCUE, node__known=True)
    return rows.exclude(node_uid="").exclude(node__uid=F("node_uid")).exclude(hold=Rescue.Hold.EXTERNAL)


def is_replaced(rescue: Rescue) -> bool:
    """Whether the rescue is one of them, by its node's row as it was read."""
    node, given = rescue.node, rescue.hold == Rescue.Hold.EXTERNAL
    return bool(node.known and rescue.node_uid and not given) and node.uid != rescue.node_uid


def marked_on(node: Node) -> Rescue | None:
    """The newest rescue that still has marks on the node."""
    return Rescue.objects.filter(node=node).exclude(marks={}).order_by("-pk").first()


def at_odds() -> QuerySet[Node]:
    """Nodes without an open rescue whose marks, as the watch shows them, are not those that the rows know of, or that
    somebody uncordoned under the portal's mark."""
    rescues = Rescue.objects.filter(node=OuterRef("pk"))
    nodes = Node.objects.filter(known=True).exclude(Exists(rescues.filter(state__in=lifecycle.OPEN_RESCUE)))
    known, shown = Exists(rescues.exclude(marks={})), ~Q(marks={})
    lifted = Q(marks__changed__cordon=True) | Q(marks__before__unschedulable=True)
    return nodes.filter((known & ~shown) | (~known & shown) | (shown & lifted & Q(unschedulable=False)))


def _left_to_people(past: Sequence[Rescue], incident: Incident) -> Rescue | None:
    """The rescue after which a person has the next word on the node, if it is so.

    That is one that failed, escalated or was stopped by a person, or an operator's own cordon: while its marks are on
    the node, and for every sighting that is older than its end. A fault seen after a node was taken back is a new one.
    One that came after it and took nothing back, as a release of what was cordoned again, ends nothing.
    """
    closed = [one for one in past if one.state in lifecycle.CLOSED_RESCUE]
    marked = [one for one in closed if one.marks]
    return next((one for one in (*closed[:1], *marked[:1]) if _leaves_to_people(one, incident)), None)


def _leaves_to_people(last: Rescue, incident: Incident) -> bool:
    if last.closed_at is None:
        return False
    marked = bool(last.marks)
    if last.origin == Rescue.Origin.MANUAL and last.state == Rescue.State.SUCCEEDED:
        return marked
    stopped = last.needs_human or last.state in (Rescue.State.FAILED, Rescue.State.CANCELLED)
    return stopped and (marked or incident.last_at <= last.closed_at)


def due(*, now: datetime, limit: int = 200) -> list[tuple[int, int]]:
    """Rescues that a worker may take up, each with its token: due, and under no lease that still runs."""
    free = Q(lease_until__isnull=True) | Q(lease_until__lte=now)
    rows = Rescue.objects.filter(free, state__in=("waiting", "running"), due_at__lte=now).order_by("due_at")
    return list(rows.values_list("pk", "token")[:limit])


def to_withdraw(*, now: datetime, limit: int = 100) -> list[tuple[int, datetime | None]]:
    """Steps whose request is to be called back now, each with the time when that was due."""
    rows = Step.objects.filter(withdraw_at__lte=now).order_by("withdraw_at")
    return list(rows.values_list("pk", "withdraw_at")[:limit])


def current_step(rescue: Rescue) -> Step | None:
    """The first step that is not finished."""
    return rescue.steps.exclude(state__in=lifecycle.FINISHED_STEP).order_by("index").first()


def step_named(rescue: Rescue, name: str) -> Step | None:
    """The rescue's step of that name, if its plan has one; of two rounds the last."""
    return rescue.steps.filter(name=name).order_by("-index").first()


def active() -> QuerySet[Rescue]:
    """Open rescues with what a list shows of them."""
    return (
        Rescue.objects.filter(state__in=lifecycle.OPEN_RESCUE)
        .select_related("node", "cluster")
        .prefetch_related("steps")
    )
