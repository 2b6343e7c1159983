"""Data of the overview: rescues in progress, nodes by state, recent incidents."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.db.models import Q, QuerySet, aggregates

from kcover import actions
from kcover.plans import lifecycle
from kcover_portal.accounts.queries import Scope
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.reads import rescues, waits
from kcover_portal.console.reads.wait import Wait
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import needs_person

MAX_ROWS = 12
MAX_HEALED = 6
MAX_RECENT = 8
MAX_RECENT_READ = 100  # incidents of which these are made
HEALED_WITHIN = timedelta(hours=1)
ALWAYS_SHOWN = ("attention", "faulty", "approval", "held", "healing", "healthy")


@dataclass(frozen=True, slots=True)
class Count:
    """A figure at the top of the page: the GPU nodes in a state, with the list that has just these."""

    state: str
    look: Badge
    number: int
    page: str
    query: str


@dataclass(frozen=True, slots=True)
class ActiveRescue:
    rescue: Rescue
    state: str
    done: int
    total: int
    step: str
    due_at: datetime | None
    wait: Wait | None

    @property
    def percent(self) -> int:
        """Finished steps, in per cent."""
        return round(self.done * 100 / self.total) if self.total else 0


@dataclass(frozen=True, slots=True)
class Healed:
    """Rescues since a moment that ended with a node proved healthy: how many, and the newest of them."""

    since: datetime
    number: int
    rescues: Sequence[Rescue]


@dataclass(frozen=True, slots=True)
class RecentFault:
    """The same fault in the same state on one node or more. ``count``: of its occurrences on all of them."""

    newest: Incident
    nodes: int
    count: int
    last_at: datetime

    @property
    def query(self) -> str:
        """The query of the list that has them."""
        row = self.newest
        asked = {"cluster": row.cluster.name, "kind": row.kind, "code": row.code, "state": row.state}
        return urlencode(asked)


def healed(scope: Scope, *, now: datetime) -> Healed:
    """What the portal healed in the last hour."""
    since = now - HEALED_WITHIN
    rows = scope.rows(Rescue.objects.filter(verified=True, closed_at__gte=since))
    newest = list(rows.select_related("node").order_by("-closed_at")[:MAX_HEALED])
    return Healed(since, rows.count() if len(newest) == MAX_HEALED else len(newest), newest)


def rebooted_again(scope: Scope, *, now: datetime) -> list[tuple[str, str]]:
    """Cluster and name of the nodes that came back from two or more reboots in the last hour, by one rescue or several.

    One query.
    """
    since = now - HEALED_WITHIN
    lately = Q(rescue__closed_at__gte=since) | Q(rescue__state__in=lifecycle.OPEN_RESCUE)
    reboots = Step.objects.filter(
        scope.where("rescue__cluster", "rescue__node") & lately,
        name__in=actions.names(lambda spec: spec.ends_boot),
        state=Step.State.DONE,
        finished_at__gte=since,
    )
    columns = ("rescue__cluster__name", "rescue__node__name")
    nodes = (
        reboots.order_by(*columns).values_list(*columns).annotate(reboots=aggregates.Count("pk")).filter(reboots__gt=1)
    )
    return [(cluster, name) for cluster, name, _reboots in nodes]


def counts(found: Counter[str]) -> list[Count]:
    """The number of nodes in each state; states that are rare appear only if a node is in them. Their sum is all."""
    return [
        Count(state, look, found[state], "nodes", f"status={state}")
        for state, look in presentation.NODE.items()
        if found[state] or state in ALWAYS_SHOWN
    ]


def active(scope: Scope, *, now: datetime) -> list[ActiveRescue]:
    """Rescues in progress that do not need attention; the next to continue comes first."""
    rows = list(open_rescues(scope).filter(needs_human=False).order_by("due_at", "pk")[:MAX_ROWS])
    validations = waits.ends_of_validations([list(rescue.steps.all()) for rescue in rows])
    found = []
    for rescue in rows:
        steps = list(rescue.steps.all())
        done, total = rescues.number_of(steps)
        step = rescues.current(steps)
        found.append(
            ActiveRescue(
                rescue,
                needs_person.status_of(rescue),
                done,
                total,
                str(rescues.title(step)) if step else "",
                rescues.countdown(rescue, now=now),
                waits.of(rescue, steps, validations),
            )
        )
    return found


def open_rescues(scope: Scope) -> QuerySet[Rescue]:
    """Open rescues with everything that a list shows of them."""
    return (
        Rescue.objects.filter(scope.where(), state__in=lifecycle.OPEN_RESCUE)
        .select_related("node", "cluster", "decision")
        .prefetch_related("steps", "approvals")
    )


def recent_incidents(scope: Scope) -> list[RecentFault]:
    """The newest incidents of nodes, one row for the same fault on many nodes; those of programs are on their page."""
    rows = scope.rows(Incident.objects.filter(is_user_fault=False)).select_related("node", "cluster")
    groups: dict[tuple[object, ...], list[Incident]] = {}
    for incident in rows[:MAX_RECENT_READ]:
        alone = incident.pk if incident.node_id is None else None  # a storm
        groups.setdefault((incident.cluster_id, incident.kind, incident.code, incident.state, alone), []).append(
            incident
        )
    return [
        RecentFault(
            newest=incidents[0],
            nodes=len({incident.node_id for incident in incidents}),
            count=sum(incident.count for incident in incidents),
            last_at=max(incident.last_at for incident in incidents),
        )
        for incidents in list(groups.values())[:MAX_RECENT]
    ]
