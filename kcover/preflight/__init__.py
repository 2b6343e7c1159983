"""Preflight: find the abnormal and slow nodes of a job from the reports of its ``preflight`` init containers.

``report`` parses one report, ``verdict`` evaluates the reports of one run. Both are pure: the verdict depends only on
the reports and their times (invariant 41).
"""

from kcover.preflight.deadline import DeadlineInvalid, parse_deadline
from kcover.preflight.report import Batch, Report, ReportInvalid, bus_bandwidth, expected_batches, read
from kcover.preflight.verdict import (
    CHANGES,
    COLLECT_TIMEOUT,
    STATES,
    Cleared,
    Received,
    ReportChange,
    Run,
    RunSummary,
    Verdict,
    classify,
    cleared,
    evaluate,
    expired,
    receive,
)

__all__ = [
    "CHANGES",
    "COLLECT_TIMEOUT",
    "STATES",
    "Batch",
    "Cleared",
    "DeadlineInvalid",
    "Received",
    "Report",
    "ReportChange",
    "ReportInvalid",
    "Run",
    "RunSummary",
    "Verdict",
    "bus_bandwidth",
    "classify",
    "cleared",
    "evaluate",
    "expected_batches",
    "expired",
    "parse_deadline",
    "read",
    "receive",
]
