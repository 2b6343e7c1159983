"""What the overview shows: who needs a person now, what the portal is doing, how many nodes are how."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _

from kcover import lifecycle
from kcover_portal.console import looks, wording
from kcover_portal.console.reads import fleet, rescues, safety, timeline
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Decision, Rescue

LISTED = 12


@dataclass(frozen=True, slots=True)
class Need:
    """One line of the list of what needs a person: what, why, since when, and where to act."""

    look: looks.Look
    title: str
    text: str
    since: datetime | None
    page: str
    record: int | None = None
    cluster: str = ""
    node: str = ""
    until: datetime | None = None  # when it is too late to do it


@dataclass(frozen=True, slots=True)
class Count:
    """A figure on top of the page, with the list that it counts."""

    look: looks.Look
    number: int
    page: str
    query: str


@dataclass(frozen=True, slots=True)
class Active:
    """A rescue under way with how far it came."""

    rescue: Rescue
    state: str
    done: int
    total: int
    step: str
    due_at: datetime | None

    @property
    def percent(self) -> int:
        """Finished steps, in per cent."""
        return round(self.done * 100 / self.total) if self.total else 0


def counts(found: Counter[str]) -> list[Count]:
    """How many nodes are in each state that matters; every figure leads to its list."""
    places = {
        "healthy": ("nodes", "state=healthy"),
        "faulty": ("nodes", "state=faulty"),
        "healing": ("rescues", "tab=active"),
        "held": ("nodes", "state=faulty"),
        "approval": ("rescues", "tab=approval"),
        "attention": ("rescues", "tab=people"),
    }
    return [Count(looks.of("node", state), found[state], *place) for state, place in places.items()]


def needs(clusters: Collection[Cluster]) -> list[Need]:
    """Everything that waits for a person, most urgent first."""
    found = [*_storms(clusters), *_rescues(clusters), *_unhandled(clusters)]
    found += [
        Need(
            looks.Look("", "ask", "wifi-off"),
            _("The watch of cluster %(cluster)s has no word") % {"cluster": cluster.name},
            cluster.watch_error,
            cluster.watched_at,
            "nodes",
            cluster=cluster.name,
        )
        for cluster in clusters
        if cluster.watch_error
    ]
    return found


def _storms(clusters: Collection[Cluster]) -> list[Need]:
    return [
        Need(
            looks.of("guard", "storm"),
            _("Storm: %(symptom)s on %(n)d nodes") % {"symptom": storm.code, "n": len(storm.scope)},
            _("Its nodes are left alone. Find what they share, then close the storm."),
            storm.opened_at,
            "incident",
            storm.pk,
            storm.cluster.name,
        )
        for storm in safety.storms(clusters)[:LISTED]
    ]


def _rescues(clusters: Collection[Cluster]) -> list[Need]:
    rows = Rescue.objects.filter(cluster__in=clusters).select_related("node", "cluster", "decision")
    left = [
        Need(
            looks.of("node", "attention"),
            _("%(node)s is left to people") % {"node": rescue.node.name},
            rescue.because or rescue.outcome,
            rescue.closed_at or rescue.opened_at,
            "rescue",
            rescue.pk,
            rescue.cluster.name,
            rescue.node.name,
        )
        for rescue in rows.filter(fleet.LEFT_TO_PEOPLE)[:LISTED]
    ]
    asked = [
        Need(
            looks.of("node", "approval"),
            _("Approve the rescue of %(node)s?") % {"node": rescue.node.name},
            " · ".join(part for part in (rescue.code, rescue.rule) if part),
            rescue.opened_at,
            "rescue",
            rescue.pk,
            rescue.cluster.name,
            rescue.node.name,
            until=rescue.expires_at,
        )
        for rescue in rows.filter(fleet.AWAITING).order_by("expires_at", "pk")[:LISTED]
    ]
    return left + asked


def _unhandled(clusters: Collection[Cluster]) -> list[Need]:
    """Open faults of nodes that nothing is being done about, or that wait for a person, with the reason that the last
    decision gave."""
    settled = Q(judge_at=None) | Q(pk__in=queries.asking().values("incident"))
    rescued = Rescue.objects.filter(node=OuterRef("node"), state__in=lifecycle.OPEN_RESCUE)
    left = Rescue.objects.filter(fleet.LEFT_TO_PEOPLE, node=OuterRef("node"))
    rows = (
        Incident.objects.filter(settled, cluster__in=clusters, state=Incident.State.OPEN, program=False)
        .exclude(node=None)
        .exclude(Exists(rescued))
        .exclude(Exists(left))
        .select_related("node", "cluster")[:LISTED]
    )
    incidents = list(rows)
    reasons = {
        decision.incident_id: decision
        for decision in Decision.objects.filter(incident__in=[one.pk for one in incidents]).order_by("pk")
    }
    found = []
    for incident in incidents:
        decision = reasons.get(incident.pk)
        fault = timeline.fault_name(incident.kind, incident.code)
        found.append(
            Need(
                looks.of("node", "faulty"),
                _("%(fault)s on %(node)s, and nothing is being done") % {"fault": fault, "node": incident.where},
                wording.sentence(decision.reasons) if decision else _("not judged yet"),
                incident.opened_at,
                "incident",
                incident.pk,
                incident.cluster.name,
                incident.node.name if incident.node else "",
            )
        )
    return found


def active(clusters: Collection[Cluster], *, now: datetime) -> list[Active]:
    """Rescues under way that need nobody, the ones that go on soonest first."""
    rows = list(open_rescues(clusters).filter(needs_human=False).order_by("due_at", "pk")[:LISTED])
    found = []
    for rescue in rows:
        steps = list(rescue.steps.all())
        done, total = rescues.number_of(steps)
        step = rescues.current(steps)
        found.append(
            Active(
                rescue,
                rescues.shown_state(rescue),
                done,
                total,
                str(rescues.title(step)) if step else "",
                rescues.countdown(rescue, now=now),
            )
        )
    return found


def open_rescues(clusters: Collection[Cluster]) -> QuerySet[Rescue]:
    """Open rescues of the clusters with all that a list shows of them."""
    return (
        Rescue.objects.filter(cluster__in=clusters, state__in=lifecycle.OPEN_RESCUE)
        .select_related("node", "cluster", "decision")
        .prefetch_related("steps", "approvals")
    )


def recent_incidents(clusters: Collection[Cluster]) -> list[Incident]:
    """The newest faults, program's doings included: they are shown as such."""
    return list(Incident.objects.filter(cluster__in=clusters).select_related("node", "cluster")[:8])
