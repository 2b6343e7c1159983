"""Writes of preflight: reports become runs, and the verdicts of runs become faults."""

from kcover_portal.preflight.services.collection import (
    MAX_OPEN_RUNS,
    AddedReport,
    Workload,
    expire,
    prune,
    receive,
)
from kcover_portal.preflight.services.node_reports import SentReport, receive_from_node
from kcover_portal.preflight.services.report_objects import read_report_objects
from kcover_portal.preflight.services.verdict_faults import MAX_VERDICTS, report_verdicts

__all__ = [
    "MAX_OPEN_RUNS",
    "MAX_VERDICTS",
    "AddedReport",
    "SentReport",
    "Workload",
    "expire",
    "prune",
    "read_report_objects",
    "receive",
    "receive_from_node",
    "report_verdicts",
]
