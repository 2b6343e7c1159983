"""The columns of the lists that people sort and choose the columns of."""

from django.db.models import Case, IntegerField, Q, Value, When
from django.utils import timezone
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from kcover_portal.console import presentation
from kcover_portal.console.list_query import Column
from kcover_portal.rescue.queries import needs_person
from kcover_portal.shared_reads import node_status, nodes


def _place(conditions: dict[str, Q]) -> Case:
    """The place of a row's state in the order of these conditions."""
    places = (When(condition, then=Value(place)) for place, condition in enumerate(conditions.values()))
    return Case(*places, default=len(conditions), output_field=IntegerField())


def _urgency() -> Case:
    """The place of a node's state in the order of urgency."""
    now = timezone.now()
    states = (*node_status.STATUSES, *node_status.OFF_THE_MAP)
    return _place({state: node_status.in_status(state, now=now) for state in states})


NODES = (
    Column("name", _("Node"), ("name",), always=True),
    Column("state", _("State"), (_urgency,)),
    Column("gpus", _("GPUs"), ("gpus",)),
    Column("pool", _("Pool"), ("pool",)),
    Column("model", _("Model"), ("model",)),
    Column("faults", _("Open faults"), (nodes.open_faults,)),
    Column("agent", _("Agent"), ("agent__seen_at",)),
    Column("driver", _("Driver"), ("driver",), usual=False),
    Column("kernel", _("Kernel"), ("kernel",), usual=False),
    Column("kubelet", _("Kubelet"), ("kubelet",), usual=False),
    Column("address", _("Address"), ("address",), usual=False),
)
INCIDENTS = (
    Column("fault", _("Fault"), ("kind", "code"), always=True),
    Column("state", _("State"), ("state", "is_user_fault")),
    Column("node", _("Node"), ("node__name",)),
    Column("device", _("Device"), ("device",)),
    Column("count", _("Count"), ("count",), numeric=True),
    Column("last", _("Last seen"), ("last_at",)),
    Column("opened", _("Opened"), ("opened_at",), usual=False),
    Column("severity", _("Severity"), usual=False),
    Column("gpu", _("GPU UUID"), ("gpu_uuid",), usual=False),
)
RESCUES = (
    Column("id", _("Rescue"), ("pk",), always=True),
    Column("state", _("State"), (lambda: _place({one: needs_person.STATUSES[one] for one in presentation.RESCUE}),)),
    Column("node", _("Node"), ("node__name",)),
    Column("cause", _("Cause"), ("fault_kind", "fault_code")),
    Column("steps", _("Steps")),
    Column("verification", _("Verification"), ("verified",)),
    Column("opened", _("Opened"), ("opened_at",)),
    Column("closed", _("Closed"), ("closed_at",), usual=False),
    Column("policy", _("Policy"), ("policy",), usual=False),
    Column("requested", _("Requested by"), ("requested_by",), usual=False),
)
OCCURRENCES = (
    Column("fault", _("Fault"), ("incident__kind", "incident__code"), always=True),
    Column("node", _("Node"), ("node__name",)),
    Column("source", _("Source"), ("source",)),
    Column("count", _("Count"), ("count",), numeric=True),
    Column("line", _("Log line"), ("message",)),
    Column("received", _("Received"), ("at",)),
)
REPAIRS = (
    Column("id", _("Repair"), ("pk",), always=True),
    Column("state", _("State"), ("state",)),
    Column("node", _("Node"), ("node_name",)),
    Column("part", _("Part"), ("part_kind", "part_serial")),
    Column("owner", _("Owner"), ("assignee",)),
    Column("due", _("Next date"), ("due",)),
    Column("vendor", _("Vendor, ticket"), ("vendor", "ticket")),
    Column("reported", _("Reported"), ("reported_at",)),
)
# Logs are read by time; their pages go by key.
AUDIT = (
    Column("number", _("No."), numeric=True),
    Column("at", _("Time"), ("pk",)),
    Column("actor", _("Actor")),
    Column("action", _("Action"), always=True),
    Column("target", _("Target")),
    Column("details", _("Details")),
)
DELIVERIES = (
    Column("number", _("No."), numeric=True),
    Column("state", _("State")),
    Column("channel", _("Channel")),
    Column("message", _("Message"), always=True),
    Column("at", _("Time"), ("pk",)),
    Column("attempts", _("Attempts"), numeric=True),
    Column("result", _("Result")),
)
DECISIONS = (  # the parts of a card
    Column("node", _("Node"), always=True),
    Column("rule", _("Rule")),
    Column("at", _("Time"), ("pk",)),
    Column("guards", _("Guards passed")),
    Column("tried", _("Rules evaluated")),
)
PLACEMENTS = (
    Column("serial", _("Serial number"), ("part__serial",), always=True),
    Column("part", _("Part"), ("part__kind", "part__model")),
    Column("node", _("Node"), ("node_name",)),
    Column("slot", _("Slot"), ("slot",)),
    Column("since", _("Since"), ("since",)),
    Column("until", _("Until"), ("until",)),
)
_REQUEST = (
    Column("requester", _("Requested by"), ("requested_by",)),
    Column("requested", _("Requested"), ("requested_at",)),
)
CHECK_RUNS = (
    Column("id", _("Run"), ("pk",), always=True),
    Column("state", _("State"), ("state",)),
    Column("cluster", _("Cluster"), ("cluster__name",)),
    Column("checks", _("Checks")),
    Column("nodes", _("Nodes"), ("total",)),
    *_REQUEST,
)
VALIDATIONS = (
    Column("id", pgettext_lazy("node", "Validation"), ("pk",), always=True),
    Column("state", _("State"), ("state",)),
    Column("profile", _("Profile"), ("profile",)),
    Column("cluster", _("Cluster"), ("cluster__name",)),
    Column("nodes", _("Nodes")),
    *_REQUEST,
)
PREFLIGHT_RUNS = (
    Column("id", _("Run"), ("pk",), always=True),
    Column("workload", _("Workload"), ("namespace", "workload")),
    Column("state", _("State"), ("state",)),
    Column("reports", _("Reports"), ("received",)),
    Column("abnormal", _("Abnormal")),
    Column("slow", pgettext_lazy("preflight", "Slow")),
    Column("first", _("First report"), ("first_at",)),
)
PAIR_PLANS = (
    Column("id", pgettext_lazy("preflight", "Plan"), ("pk",), always=True),
    Column("state", _("State"), ("state",)),
    Column("cluster", _("Cluster"), ("cluster__name",)),
    Column("slow", pgettext_lazy("preflight", "Slow")),
    Column("inconclusive", _("Inconclusive")),
    *_REQUEST,
)
