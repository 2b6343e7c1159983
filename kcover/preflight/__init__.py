"""Preflight: find the abnormal and slow nodes of a job from the reports of its ``preflight`` init containers.

``report`` parses one report, ``verdict`` evaluates the reports of one run. Both are pure: the verdict depends only on
the reports and their times (invariant 41).
"""

from kcover.preflight.deadline import DeadlineInvalid as DeadlineInvalid, parse_deadline as parse_deadline
from kcover.preflight.report import (
    Batch as Batch,
    Report as Report,
    ReportInvalid as ReportInvalid,
    bus_bandwidth as bus_bandwidth,
    expected_batches as expected_batches,
    read as read,
)
from kcover.preflight.verdict import (
    CHANGES as CHANGES,
    COLLECT_TIMEOUT as COLLECT_TIMEOUT,
    STATES as STATES,
    Cleared as Cleared,
    Received as Received,
    ReportChange as ReportChange,
    Run as Run,
    RunSummary as RunSummary,
    Verdict as Verdict,
    classify as classify,
    cleared as cleared,
    evaluate as evaluate,
    expired as expired,
    receive as receive,
)
