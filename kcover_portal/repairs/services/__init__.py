"""Writes of repairs: reports, moves, changes, and what the portal does by itself."""

from kcover_portal.repairs.services import deliveries
from kcover_portal.repairs.services.deliveries import DeliveryReused as DeliveryReused
from kcover_portal.repairs.services.desk import (
    RepairRefused as RepairRefused,
    act as act,
    change as change,
    report as report,
)
from kcover_portal.repairs.services.escalations import report_escalated as report_escalated
from kcover_portal.repairs.services.jira_events import note_keys as note_keys
from kcover_portal.repairs.services.machine_validation import (
    MachineValidation as MachineValidation,
    find_validations_with as find_validations_with,
    look_at_validations as look_at_validations,
)
from kcover_portal.repairs.services.vendor_events import (
    EventForbidden as EventForbidden,
    RepairUnknown as RepairUnknown,
)
from kcover_portal.repairs.services.vendor_terms import set_terms as set_terms

forget_deliveries = deliveries.forget
