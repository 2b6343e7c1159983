"""Data of the overview: what needs a person, rescues in progress, nodes by state."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from kcover import lifecycle
from kcover_portal import localization
from kcover_portal.console import presentation
from kcover_portal.console.fault_names import fault_name, of_rescue, symptom
from kcover_portal.console.reads import rescues
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.views import needs_person

LISTED = 12


@dataclass(frozen=True, slots=True)
class Need:
    """One line of the list of what needs a person: what, why, since when, and where to act."""

    look: presentation.Badge
    title: str
    text: str
    since: datetime | None
    page: str
    record: int | None = None
    cluster: str = ""
    node: str = ""
    until: datetime | None = None  # when it expires


@dataclass(frozen=True, slots=True)
class Count:
    """A figure at the top of the page, with the list that it counts."""

    look: presentation.Badge
    number: int
    page: str
    query: str


@dataclass(frozen=True, slots=True)
class Active:
    """A rescue in progress."""

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
    """The number of nodes in each state, with the list that each number links to."""
    places = {
        "healthy": ("nodes", "state=healthy"),
        "faulty": ("nodes", "state=faulty"),
        "healing": ("rescues", "tab=active"),
        "held": ("nodes", "state=faulty"),
        "approval": ("rescues", "tab=approval"),
        "attention": ("rescues", "tab=people"),
    }
    return [Count(presentation.of("node", state), found[state], *place) for state, place in places.items()]


def needs(clusters: Collection[Cluster]) -> list[Need]:
    """Everything that needs a person, most urgent first."""
    waiting = needs_person.of(clusters)
    found = [*_storms(waiting.storms), *_rescues(waiting), *_unhandled(waiting.incidents)]
    found += [
        Need(
            presentation.Badge("", "ask", "wifi-off"),
            _("The watch on cluster %(cluster)s is disconnected") % {"cluster": cluster.name},
            cluster.watch_error,
            cluster.watched_at,
            "nodes",
            cluster=cluster.name,
        )
        for cluster in waiting.clusters
    ]
    return found


def _storms(rows: QuerySet[Incident]) -> list[Need]:
    return [
        Need(
            presentation.of("guard", "storm"),
            _("Storm: %(symptom)s on %(n)d nodes") % {"symptom": symptom(storm.code), "n": len(storm.scope)},
            _("Its nodes are not touched. Find what they share, then close the storm."),
            storm.opened_at,
            "incident",
            storm.pk,
            storm.cluster.name,
        )
        for storm in rows.select_related("cluster")[:LISTED]
    ]


def _rescues(waiting: needs_person.NeedsPerson) -> list[Need]:
    beside = ("node", "cluster", "decision")
    left = [
        Need(
            presentation.of("node", "attention"),
            _("%(node)s needs a person") % {"node": rescue.node.name},
            localization.stored(rescue.because) or rescue.outcome,
            rescue.closed_at or rescue.opened_at,
            "rescue",
            rescue.pk,
            rescue.cluster.name,
            rescue.node.name,
        )
        for rescue in waiting.rescues.select_related(*beside)[:LISTED]
    ]
    approvals = [
        Need(
            presentation.of("node", "approval"),
            _("Approve the rescue of %(node)s?") % {"node": rescue.node.name},
            " · ".join(part for part in (of_rescue(rescue), rescue.rule) if part),
            rescue.opened_at,
            "rescue",
            rescue.pk,
            rescue.cluster.name,
            rescue.node.name,
            until=rescue.expires_at,
        )
        for rescue in waiting.approvals.select_related(*beside).order_by("expires_at", "pk")[:LISTED]
    ]
    return left + approvals


def _unhandled(rows: QuerySet[Incident]) -> list[Need]:
    """Open faults of nodes that nothing handles, or that wait for a person, with the reason of the last decision."""
    incidents = list(rows.select_related("node", "cluster")[:LISTED])
    reasons = {
        decision.incident_id: decision
        for decision in Decision.objects.filter(incident__in=[row.pk for row in incidents]).order_by("pk")
    }
    found = []
    for incident in incidents:
        decision = reasons.get(incident.pk)
        fault = fault_name(incident.kind, incident.code)
        found.append(
            Need(
                presentation.of("node", "faulty"),
                _("%(fault)s on %(node)s: no action taken") % {"fault": fault, "node": incident.where},
                localization.sentence(decision.reasons) if decision else _("no decision yet"),
                incident.opened_at,
                "incident",
                incident.pk,
                incident.cluster.name,
                incident.node.name if incident.node else "",
            )
        )
    return found


def active(clusters: Collection[Cluster], *, now: datetime) -> list[Active]:
    """Rescues in progress that do not need a person; the next to continue comes first."""
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
    """Open rescues of the clusters with everything that a list shows of them."""
    return (
        Rescue.objects.filter(cluster__in=clusters, state__in=lifecycle.OPEN_RESCUE)
        .select_related("node", "cluster", "decision")
        .prefetch_related("steps", "approvals")
    )


def recent_incidents(clusters: Collection[Cluster]) -> list[Incident]:
    """The newest incidents, including application faults."""
    return list(Incident.objects.filter(cluster__in=clusters).select_related("node", "cluster")[:8])
