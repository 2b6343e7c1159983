"""Writes of preflight: reports become runs, and the verdicts of runs become faults."""

from kcover_portal.preflight.services.collection import (
    MAX_OPEN_RUNS as MAX_OPEN_RUNS,
    AddedReport as AddedReport,
    Workload as Workload,
    announce as announce,
    expire as expire,
    prune as prune,
    receive as receive,
)
from kcover_portal.preflight.services.node_reports import (
    SentReport as SentReport,
    receive_from_node as receive_from_node,
)
from kcover_portal.preflight.services.report_objects import read_report_objects as read_report_objects
from kcover_portal.preflight.services.verdict_faults import (
    MAX_VERDICTS as MAX_VERDICTS,
    report_verdicts as report_verdicts,
)
