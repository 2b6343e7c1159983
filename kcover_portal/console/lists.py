"""The lists of the console: which rows a person sees, which filters apply, and which columns an export has.

A page, its export and a bulk action all call ``find``, so that they mean the same rows.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.http import QueryDict
from django_filters import FilterSet

from kcover import masked_addresses, reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.checks.filtersets import CheckRunFilter, ValidationFilter
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.console.rescue_tabs import TABS, Tab
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.filtersets import OccurrenceFilter
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.ledger.filtersets import EntryFilter
from kcover_portal.notify.filtersets import DeliveryFilter
from kcover_portal.notify.models import Delivery
from kcover_portal.policies.filtersets import RevisionFilter
from kcover_portal.policies.models import Revision
from kcover_portal.preflight.filtersets import PairPlanFilter, PreflightRunFilter
from kcover_portal.preflight.models import PairPlan, PreflightRun
from kcover_portal.repairs.filtersets import RepairFilter
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.filtersets import FAULT, DecisionFilter, RescueFilter
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.views import audit, nodes
from kcover_portal.views.filtersets import IncidentFilter, NodeFilter

KEY = re.compile("[0-9]{1,18}")  # a row's key in an address, within the range of the database
OF_THE_PAGE = ("page", "sort", "before", "picked", "all")  # parameters of the position in a list, not of its content


@dataclass(frozen=True, slots=True)
class Listing:
    """One list.

    ``columns`` of its export: a stable name and the lookup of its value. ``convert``: for some columns, a function that
    turns the value into what the REST API shows.
    """

    name: str
    filterset: type[FilterSet]
    seen: Callable[[User], QuerySet[Any]]
    columns: Mapping[str, str | Combinable]
    cut: Callable[[QuerySet[Any], QueryDict], QuerySet[Any]] = lambda rows, parameters: rows
    tabs: Sequence[Tab] = ()
    convert: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListResult:
    """The selected rows; ``filter`` holds the form with its errors, ``seen`` all rows that the person can see."""

    listing: Listing
    filter: FilterSet
    seen: QuerySet[Any]
    narrowed: QuerySet[Any]
    rows: QuerySet[Any]
    parameters: QueryDict

    @property
    def query(self) -> str:
        """The query string of these filters, without paging."""
        kept = self.parameters.copy()
        for name in OF_THE_PAGE:
            kept.pop(name, None)
        return kept.urlencode()

    @property
    def rest_query(self) -> str:
        """The same query for the REST API, which rejects unknown parameters."""
        known = QueryDict(mutable=True)
        for name in self.filter.base_filters:
            if any(values := self.parameters.getlist(name)):
                known.setlist(name, values)
        tab = _tab(self.listing, self.parameters)
        return "&".join(part for part in (known.urlencode(), tab.rest if tab else "") if part)


def find(listing: Listing, user: User, parameters: QueryDict) -> ListResult:
    """The visible rows that match the filters and, with ``picked``, the given keys."""
    seen = listing.seen(user)
    chosen = listing.filterset(parameters, queryset=listing.cut(seen, parameters))
    narrowed = chosen.qs
    tab = _tab(listing, parameters)
    rows = narrowed.filter(tab.where) if tab else narrowed
    if "picked" in parameters and "all" not in parameters:
        rows = rows.filter(pk__in=[int(key) for key in parameters.get("picked", "").split(",") if KEY.fullmatch(key)])
    return ListResult(listing, chosen, seen, narrowed, rows, parameters)


def _tab(listing: Listing, parameters: QueryDict) -> Tab | None:
    return next((tab for tab in listing.tabs if tab.name == parameters.get("tab")), None)


def _visible(rows: QuerySet[Any], cluster: str = "cluster", node: str | None = "node") -> Any:
    """A function that returns the rows that a person can see. See ``accounts.Scope.where`` for the paths."""
    return lambda user: accounts.visible(user, rows, cluster, node)


def _without_gone(rows: QuerySet[Any], parameters: QueryDict) -> QuerySet[Any]:
    """Leave removed nodes out unless the filter asks for them."""
    return rows if "gone" in parameters.getlist("state") else rows.filter(gone_at=None)


def _own_columns(*names: str) -> dict[str, str | Combinable]:
    """Columns with the same names as the model's fields."""
    return {name: name for name in names}


def _because(stored: list[Any]) -> list[str]:
    return [str(reasons.from_json(reason)) for reason in stored]


def _tried(stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**candidate, "because": reasons.text(candidate["because"])} for candidate in stored]


_WHERE: dict[str, str | Combinable] = {"cluster": "cluster__name", "node": "node__name"}

NODES = Listing(
    "nodes",
    NodeFilter,
    _visible(Node.objects.all(), "cluster", ""),
    {
        "id": "id",
        "cluster": "cluster__name",
        "name": "name",
        "known": "in_cluster",
        **_own_columns("ready", "ready_since"),
        "cordoned": "unschedulable",
        "faults": nodes.open_faults(),
        "rescue": nodes.open_rescue(),
        **_own_columns("pool", "model", "gpus", "driver", "kernel", "kubelet", "address", "boot_id"),
        "agent_version": "agent__version",
        "agent_seen_at": "agent__seen_at",
        **_own_columns("labels", "taints", "created_at", "gone_at"),
    },
    _without_gone,
)
INCIDENTS = Listing(
    "incidents",
    IncidentFilter,
    _visible(Incident.objects.all()),
    {
        "id": "id",
        **_WHERE,
        **_own_columns("kind", "code", "state", "severity"),
        "program": "is_user_fault",
        **_own_columns("cause", "drill", "count", "device", "gpu_uuid"),
        **_own_columns("message", "boot_id", "opened_at", "last_at", "closed_at", "closed_because"),
    },
    convert={"closed_because": reasons.text},
)
OCCURRENCES = Listing(
    "occurrences",
    OccurrenceFilter,
    _visible(Occurrence.objects.all(), "node__cluster", "node"),
    {
        "id": "id",
        "incident": "incident_id",
        "cluster": "node__cluster__name",
        "node": "node__name",
        "kind": "incident__kind",
        "code": "incident__code",
        **_own_columns("source", "sequence", "message", "drill", "count", "boot_id", "seen_at", "at"),
    },
)
DECISIONS = Listing(
    "decisions",
    DecisionFilter,
    _visible(Decision.objects.all()),
    {
        "id": "id",
        **_WHERE,
        "incident": "incident_id",
        **_own_columns(
            "answer", "mode", "rule", "policy", "revision", "because", "tried", "steps", "count", "at", "last_at"
        ),
    },
    convert={"because": _because, "tried": _tried, "steps": masked_addresses.mask},
)
RESCUES = Listing(
    "rescues",
    RescueFilter,
    _visible(Rescue.objects.all()),
    {
        "id": "id",
        **_WHERE,
        **_own_columns("state", "outcome", "verified", "because", "needs_human", "origin", "requested_by", "reason"),
        "opened_because": "opened_because",
        "code": FAULT,
        **_own_columns("policy", "revision", "rule"),
        "decision": "decision_id",
        **_own_columns("plan_hash", "opened_at", "due_at", "closed_at"),
    },
    tabs=TABS,
    convert={"because": reasons.text, "opened_because": reasons.text},
)
AUDIT = Listing(
    "audit",
    EntryFilter,
    audit.entries,
    _own_columns(
        *("id", "cluster", "sequence", "at", "actor", "verb", "subject", "node", "rescue"),
        *("data", "previous", "digest"),
    ),
    convert={"data": masked_addresses.mask},
)
REVISIONS = Listing(
    "revisions",
    RevisionFilter,
    lambda user: Revision.objects.all(),
    {"id": "id", "policy": "policy__name", **_own_columns("number", "author", "reason", "at", "text")},
    convert={"text": masked_addresses.mask},
)
DELIVERIES = Listing(
    "deliveries",
    DeliveryFilter,
    lambda user: Delivery.objects.all() if accounts.may(user, Verb.WRITE_CHANNELS, None) else Delivery.objects.none(),
    {
        "id": "id",
        "channel": "name",
        **_own_columns("state", "test", "subject", "text", "attempts", "because", "opened_at", "due_at", "closed_at"),
    },
    convert={"because": reasons.text},
)
CHECK_RUNS = Listing(
    "check-runs",
    CheckRunFilter,
    _visible(CheckRun.objects.all(), "cluster", None),
    {
        "id": "id",
        "cluster": "cluster__name",
        **_own_columns("state", "checks"),
        "r": "level",
        **_own_columns("batch", "total", "done", "wrong", "requested_by", "requested_at", "finished_at"),
    },
)
VALIDATIONS = Listing(
    "validations",
    ValidationFilter,
    _visible(Validation.objects.all(), "cluster", None),
    {"id": "id", "cluster": "cluster__name"}
    | _own_columns("profile", "state", "reason", "requested_by", "requested_at", "finished_at"),
)
PREFLIGHT_RUNS = Listing(
    "preflight-runs",
    PreflightRunFilter,
    _visible(PreflightRun.objects.all(), "cluster", None),
    {
        "id": "id",
        "cluster": "cluster__name",
        **_own_columns("namespace", "workload", "uid", "state", "received"),
        "expected_reports": "size",
        "slow_nodes": "slow",
        "abnormal_nodes": "abnormal",
        "suspect_nodes": "suspects",
        **_own_columns("rejected", "because", "first_at", "last_at", "due_at", "ended_at"),
    },
    convert={"because": _because},
)
PAIR_PLANS = Listing(
    "preflight-plans",
    PairPlanFilter,
    _visible(PairPlan.objects.all(), "cluster", None),
    {"id": "id", "cluster": "cluster__name"}
    | _own_columns("state", "rule", "rounds", "threshold", "slow", "fabric", "inconclusive", "storm")
    | _own_columns("reason", "requested_by", "requested_at", "finished_at"),
)
REPAIRS = Listing(
    "repairs",
    RepairFilter,
    _visible(Repair.objects.all()),
    {
        "id": "id",
        "cluster": "cluster__name",
        "node": "node_name",
        **_own_columns("state", "machine_serial", "part_kind", "part_serial", "part_slot", "vendor", "queue", "ticket"),
        **_own_columns("assignee", "due", "action", "opened_because", "opened_by"),
        "rescue": "rescue_id",
        **_own_columns(*(f"{state}_at" for state in Repair.State.values)),
    },
    convert={"opened_because": _because},
)
_OF_RUNS = (CHECK_RUNS, VALIDATIONS, PREFLIGHT_RUNS)
_EVERY = (*_OF_RUNS, NODES, INCIDENTS, OCCURRENCES, DECISIONS, RESCUES, REPAIRS, AUDIT, REVISIONS, DELIVERIES)
LISTINGS = {listing.name: listing for listing in _EVERY}
