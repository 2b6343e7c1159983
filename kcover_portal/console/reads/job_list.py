"""The list of training jobs: which of them the address asks for, in which order, and what its export has."""

from collections.abc import Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from django.http import QueryDict
from django.utils.translation import gettext_lazy

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User
from kcover_portal.console import presentation
from kcover_portal.console.computed_lists import ComputedListing, ComputedRows
from kcover_portal.console.list_query import Column
from kcover_portal.jobs import queries
from kcover_portal.kube import port

URGENT_FIRST: Final = (queries.FAILED, queries.WAITING, queries.RESTARTING, queries.RUNNING, queries.STOPPED)


def find(user: User, parameters: QueryDict, now: datetime) -> ComputedRows[queries.JobView]:
    """Asks the API servers of the clusters that the person sees, and the address does not leave out."""
    wanted, scope = JOBS.asked(parameters), accounts.scope(user)
    seen = scope.clusters().order_by("name")
    clusters = list(seen.filter(name=wanted["cluster"]) if wanted["cluster"] else seen)
    kind, state = JOBS.chosen("kind", parameters), JOBS.chosen("state", parameters)
    found, silent = queries.jobs(clusters, scope, now=now, namespace=wanted["namespace"], kind=kind)
    rows = sorted(queries.matching(found, text=wanted["q"], state=state), key=_urgency)
    return ComputedRows(JOBS.ordered(rows, parameters), [(one.cluster, one.because) for one in silent])


def _urgency(job: queries.JobView) -> tuple[bool, int, str, str, str]:
    """The usual order: jobs with an error or with an order that waits first, then by state and name."""
    return not (job.because or job.awaits_approval), URGENT_FIRST.index(job.state), job.name, job.namespace, job.cluster


JOBS: Final[ComputedListing[queries.JobView]] = ComputedListing(
    name="jobs",
    filters=("q", "cluster", "namespace", "kind", "state"),
    find=find,
    table=(
        Column("name", gettext_lazy("Job"), ("name",)),
        Column("state", gettext_lazy("State"), ("state",)),
        Column("kind", gettext_lazy("Kind"), ("kind",)),
        Column("nodes", gettext_lazy("Nodes"), ("nodes",), numeric=True),
        Column("gpus", gettext_lazy("GPUs"), ("gpus",), numeric=True),
        Column("restarts", gettext_lazy("Restarts"), ("restarts",), numeric=True),
        Column("because", gettext_lazy("Because")),
    ),
    orders={
        "name": lambda job: (job.name, job.namespace, job.cluster),
        "state": lambda job: URGENT_FIRST.index(job.state),
        "kind": lambda job: job.kind,
        "nodes": lambda job: len(job.nodes),
        "gpus": lambda job: job.gpus,
        "restarts": lambda job: job.restarts,
    },
    choices={"kind": tuple(port.WORKLOADS), "state": queries.STATES},
    columns={
        **{name: attrgetter(name) for name in ("cluster", "namespace", "kind", "name", "protected", "state")},
        "nodes": lambda job: list(job.nodes),
        **{name: attrgetter(name) for name in ("gpus", "restarts", "last_restart")},
        "because": lambda job: str(job.because) if job.because else "",
        "avoid": lambda job: list(job.avoid),
        "speed": lambda job: job.performance.speed if job.performance else None,
        "slow_node": lambda job: job.performance.slow_node if job.performance else "",
    },
)


def choices(user: User) -> Mapping[str, list[tuple[str, Any]]]:
    """What the filters offer, by name."""
    clusters = accounts.scope(user).clusters().order_by("name").values_list("name", flat=True)
    return {
        "cluster": [(name, name) for name in clusters],
        "kind": [(kind, kind) for kind in port.WORKLOADS],
        "state": [(state, presentation.TABLES["job"][state].label) for state in URGENT_FIRST],
    }
