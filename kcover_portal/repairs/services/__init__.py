"""Writes of repairs: reports, verbs, changes, and what the portal does by itself."""

from kcover_portal.repairs.services.deliveries import DeliveryReused
from kcover_portal.repairs.services.deliveries import forget as forget_deliveries
from kcover_portal.repairs.services.desk import RepairRefused, act, change, report
from kcover_portal.repairs.services.escalations import report_escalated
from kcover_portal.repairs.services.jira_events import note_keys
from kcover_portal.repairs.services.machine_proof import Proof, look_at_validations, prove_with
from kcover_portal.repairs.services.vendor_events import EventForbidden, RepairUnknown
from kcover_portal.repairs.services.vendor_terms import set_terms

__all__ = [
    "DeliveryReused",
    "EventForbidden",
    "Proof",
    "RepairRefused",
    "RepairUnknown",
    "act",
    "change",
    "forget_deliveries",
    "look_at_validations",
    "note_keys",
    "prove_with",
    "report",
    "report_escalated",
    "set_terms",
]
