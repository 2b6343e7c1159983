"""The lists of the console: which rows a person sees, which filters apply, and which columns an export has.

A page, its export and a bulk action all call ``find``, so that they mean the same rows.
"""

from typing import Any

from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.http import QueryDict

from kcover import reasons
from kcover.values import masked_addresses
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.audit_stream import services as audit_stream
from kcover_portal.checks.filtersets import CheckRunFilter, ValidationFilter
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.console import incident_groups, list_columns, settings_lists
from kcover_portal.console.list_query import (
    KEY as KEY,
    Listing as Listing,
    ListResult as ListResult,
    find as find,
    own_columns,
    sentences,
    visible,
)
from kcover_portal.console.rescue_tabs import TABS
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.filtersets import OccurrenceFilter
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.ledger.filtersets import EntryFilter
from kcover_portal.notify.filtersets import DeliveryFilter
from kcover_portal.notify.models import Delivery
from kcover_portal.parts.filtersets import PlacementFilter
from kcover_portal.parts.models import Placement
from kcover_portal.policies.filtersets import RevisionFilter
from kcover_portal.policies.models import Revision
from kcover_portal.preflight.filtersets import PairPlanFilter, PreflightRunFilter
from kcover_portal.preflight.models import PairPlan, PreflightRun
from kcover_portal.repairs.filtersets import RepairFilter
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.filtersets import FAULT, DecisionFilter, RescueFilter
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.shared_reads import audit, nodes
from kcover_portal.shared_reads.filtersets import IncidentFilter, NodeFilter
from kcover_portal.sources import services as sources


def _without_gone(rows: QuerySet[Any], parameters: QueryDict) -> QuerySet[Any]:
    """Leave removed nodes out unless the filter asks for them."""
    asked = "gone" in (*parameters.getlist("state"), *parameters.getlist("status"))
    return rows if asked else rows.filter(gone_at=None)


def _tried(stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**candidate, "because": reasons.text(candidate["because"])} for candidate in stored]


_WHERE: dict[str, str | Combinable] = {"cluster": "cluster__name", "node": "node__name"}

NODES = Listing(
    "nodes",
    NodeFilter,
    visible(Node.objects.all(), "cluster", ""),
    {
        "id": "id",
        "cluster": "cluster__name",
        "name": "name",
        "known": "in_cluster",
        **own_columns("ready", "ready_since", "unready_since"),
        "cordoned": "unschedulable",
        "faults": nodes.open_faults(),
        "rescue": nodes.open_rescue(),
        **own_columns("pool", "model", "gpus", "driver", "kernel", "kubelet", "address", "boot_id"),
        "agent_version": "agent__version",
        "agent_seen_at": "agent__seen_at",
        **own_columns("labels", "taints", "created_at", "gone_at"),
    },
    _without_gone,
    table=list_columns.NODES,
)
INCIDENTS = Listing(
    "incidents",
    IncidentFilter,
    visible(Incident.objects.all()),
    {
        "id": "id",
        **_WHERE,
        **own_columns("kind", "code", "state", "severity"),
        "program": "is_user_fault",
        **own_columns("cause", "drill", "count", "device", "gpu_uuid"),
        **own_columns("message", "boot_id", "opened_at", "last_at", "closed_at", "closed_because"),
    },
    convert={"closed_because": reasons.text},
    table=list_columns.INCIDENTS,
    groupings=incident_groups.GROUPINGS,
)
OCCURRENCES = Listing(
    "occurrences",
    OccurrenceFilter,
    visible(Occurrence.objects.all(), "node__cluster", "node"),
    {
        "id": "id",
        "incident": "incident_id",
        "cluster": "node__cluster__name",
        "node": "node__name",
        "kind": "incident__kind",
        "code": "incident__code",
        **own_columns("source", "sequence", "message", "drill", "count", "boot_id", "seen_at", "at", "late_seconds"),
    },
    table=list_columns.OCCURRENCES,
)
DECISIONS = Listing(
    "decisions",
    DecisionFilter,
    visible(Decision.objects.all()),
    {
        "id": "id",
        **_WHERE,
        "incident": "incident_id",
        **own_columns(
            "answer", "mode", "rule", "policy", "revision", "because", "tried", "steps", "count", "at", "last_at"
        ),
    },
    convert={"because": sentences, "tried": _tried, "steps": masked_addresses.mask},
    table=list_columns.DECISIONS,
)
RESCUES = Listing(
    "rescues",
    RescueFilter,
    visible(Rescue.objects.all()),
    {
        "id": "id",
        **_WHERE,
        **own_columns("state", "outcome", "verified", "because", "needs_human", "origin", "requested_by", "reason"),
        "opened_because": "opened_because",
        "code": FAULT,
        **own_columns("policy", "revision", "rule"),
        "decision": "decision_id",
        **own_columns("plan_hash", "opened_at", "due_at", "closed_at"),
    },
    tabs=TABS,
    convert={"because": reasons.text, "opened_because": reasons.text},
    table=list_columns.RESCUES,
)
AUDIT = Listing(
    "audit",
    EntryFilter,
    audit.entries,
    own_columns(
        *("id", "cluster", "sequence", "at", "actor", "verb", "subject", "node", "rescue"),
        *("data", "previous", "digest"),
    ),
    convert={"data": masked_addresses.mask},
    table=list_columns.AUDIT,
)
REVISIONS = Listing(
    "revisions",
    RevisionFilter,
    lambda user: Revision.objects.all(),
    {"id": "id", "policy": "policy__name", **own_columns("number", "author", "reason", "at", "text")},
    convert={"text": masked_addresses.mask},
)
DELIVERIES = Listing(
    "deliveries",
    DeliveryFilter,
    lambda user: Delivery.objects.all() if accounts.may(user, Verb.WRITE_CHANNELS, None) else Delivery.objects.none(),
    {
        "id": "id",
        "channel": "name",
        **own_columns("state", "test", "subject", "text", "attempts", "because", "opened_at", "due_at", "closed_at"),
    },
    convert={"because": reasons.text},
    table=list_columns.DELIVERIES,
)
CHECK_RUNS = Listing(
    "check-runs",
    CheckRunFilter,
    visible(CheckRun.objects.all(), "cluster", None),
    {
        "id": "id",
        "cluster": "cluster__name",
        **own_columns("state", "checks"),
        "r": "level",
        **own_columns("batch", "total", "done", "wrong", "requested_by", "requested_at", "finished_at"),
    },
    table=list_columns.CHECK_RUNS,
)
VALIDATIONS = Listing(
    "validations",
    ValidationFilter,
    visible(Validation.objects.all(), "cluster", None),
    {"id": "id", "cluster": "cluster__name"}
    | own_columns("profile", "state", "reason", "requested_by", "requested_at", "finished_at"),
    table=list_columns.VALIDATIONS,
)
PREFLIGHT_RUNS = Listing(
    "preflight-runs",
    PreflightRunFilter,
    visible(PreflightRun.objects.all(), "cluster", None),
    {
        "id": "id",
        "cluster": "cluster__name",
        **own_columns("namespace", "workload", "uid", "state", "received"),
        "expected_reports": "size",
        "slow_nodes": "slow",
        "abnormal_nodes": "abnormal",
        "suspect_nodes": "suspects",
        **own_columns("rejected", "because", "first_at", "last_at", "due_at", "ended_at"),
    },
    convert={"because": sentences},
    table=list_columns.PREFLIGHT_RUNS,
)
PAIR_PLANS = Listing(
    "preflight-plans",
    PairPlanFilter,
    visible(PairPlan.objects.all(), "cluster", None),
    {"id": "id", "cluster": "cluster__name"}
    | own_columns("state", "rule", "rounds", "threshold", "slow", "fabric", "inconclusive", "storm")
    | own_columns("reason", "requested_by", "requested_at", "finished_at"),
    table=list_columns.PAIR_PLANS,
)
REPAIRS = Listing(
    "repairs",
    RepairFilter,
    visible(Repair.objects.all()),
    {
        "id": "id",
        "cluster": "cluster__name",
        "node": "node_name",
        **own_columns("state", "machine_serial", "part_kind", "part_serial", "part_slot", "vendor", "queue", "ticket"),
        **own_columns("assignee", "due", "action", "opened_because", "opened_by"),
        "rescue": "rescue_id",
        **own_columns(*(f"{state}_at" for state in Repair.State.values)),
    },
    convert={"opened_because": sentences},
    table=list_columns.REPAIRS,
)
PLACEMENTS = Listing(
    "placements",
    PlacementFilter,
    visible(Placement.objects.all()),
    {
        "id": "id",
        "part": "part_id",
        "kind": "part__kind",
        "serial": "part__serial",
        "model": "part__model",
        "cluster": "cluster__name",
        "node": "node_name",
        **own_columns("slot", "device"),
        "from": "since",
        "to": "until",
        **own_columns("doubt", "flags", "flagged_at", "reviewed_by", "reviewed_at"),
    },
    convert={"flags": sentences},
    table=list_columns.PLACEMENTS,
)
SOURCES = settings_lists.listing("sources", sources.SOURCES)
SINKS = settings_lists.listing("audit-sinks", audit_stream.SINKS)
LISTINGS: dict[str, Listing] = {one.name: one for one in vars().values() if isinstance(one, Listing)}
