"""The names for people of a fault and of the symptom of a storm, and a fault's message, in the reader's language."""

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy

from kcover.faults import catalog, fault
from kcover_portal.incidents.models import STORM, Incident, Occurrence
from kcover_portal.lib import localization
from kcover_portal.rescue.models import Rescue

KINDS: Final[dict[str, str | Promise]] = {
    "xid": "Xid",
    "sxid": "SXid",
    "check": gettext_lazy("Check"),
    "agent": gettext_lazy("Agent"),
    "preflight": gettext_lazy("Preflight"),
    "pod": "Pod",
    "condition": gettext_lazy("Node condition"),
    "alert": gettext_lazy("Alert"),
    "event": gettext_lazy("Kubernetes Event"),
    "health": "NVSentinel",
    "gpud": "gpud",
    "other": gettext_lazy("Other"),
    fault.OVERFLOW: gettext_lazy("Overflow"),
    STORM: gettext_lazy("Storm"),
    "ledger": gettext_lazy("Audit log"),
}

# Faults that the portal finds itself: their codes are words.
FOUND: Final[dict[tuple[str, str], str | Promise]] = {
    ("agent", "silent"): gettext_lazy("Agent silent"),
    ("ledger", "diverged"): gettext_lazy("Audit log differs from its anchor"),
    ("preflight", "slow"): gettext_lazy("Preflight slow"),
    ("preflight", "abnormal"): gettext_lazy("Preflight abnormal"),
}


def fault_name(kind: str, code: str) -> str:
    """Xid 79, SXid 12028, Check pciebw. For an incident use ``incident_name``: a storm is named by its symptom."""
    if (kind, code) in FOUND:
        return str(FOUND[kind, code])
    if kind == fault.OVERFLOW:
        return _("Too many distinct faults")
    return f"{KINDS.get(kind, kind)} {code}"


def incident_name(incident: Incident) -> str:
    """The name of the incident's fault; of a storm its symptom: Storm: Xid 79."""
    if incident.kind == STORM:
        return f"{KINDS[STORM]}: {symptom(incident)}"
    return fault_name(incident.kind, incident.code)


def incident_meaning(incident: Incident) -> str:
    """What the incident's code means, in the reader's language; "" where NVIDIA's catalog has nothing."""
    fact = catalog.describe_text(incident.kind, incident.code)
    return _(fact.title) if fact else ""


def of_rescue(rescue: Rescue) -> str:
    """The name of the fault that a rescue is about; "" if it is not about a fault."""
    return fault_name(rescue.fault_kind, rescue.fault_code) if rescue.fault_kind else ""


def fault_message(row: Incident | Occurrence) -> str:
    """The portal's own finding as a sentence, or the log line as it is."""
    return localization.stored(row.because) or row.message


def symptom(storm: Incident) -> str:
    """What the nodes of a storm share: Xid 62, switch leaf-3."""
    if storm.trait == "code":
        return fault_name(storm.symptom_kind, storm.symptom)
    known = {
        "job": _("job %(value)s"),
        "switch": _("switch %(value)s"),
        "agent_version": _("agent version %(value)s"),
    }
    return known[storm.trait] % {"value": storm.symptom} if storm.trait in known else storm.code
