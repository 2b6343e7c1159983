"""Data of the overview: rescues in progress, nodes by state, recent incidents."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from kcover import lifecycle
from kcover_portal.accounts.queries import Scope
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.reads import rescues
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue

MAX_ROWS = 12


@dataclass(frozen=True, slots=True)
class Count:
    """A figure at the top of the page, with the list that it counts."""

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


def active(scope: Scope, *, now: datetime) -> list[ActiveRescue]:
    """Rescues in progress that do not need a person; the next to continue comes first."""
    rows = list(open_rescues(scope).filter(needs_human=False).order_by("due_at", "pk")[:MAX_ROWS])
    found = []
    for rescue in rows:
        steps = list(rescue.steps.all())
        done, total = rescues.number_of(steps)
        step = rescues.current(steps)
        found.append(
            ActiveRescue(
                rescue,
                rescues.shown_state(rescue),
                done,
                total,
                str(rescues.title(step)) if step else "",
                rescues.countdown(rescue, now=now),
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


def recent_incidents(scope: Scope) -> list[Incident]:
    """The newest incidents, including application faults."""
    return list(scope.rows(Incident.objects.all()).select_related("node", "cluster")[:8])
