"""Preflight: which nodes of a job are abnormal or slow, by the reports of its ``preflight`` init containers.

``reading`` turns one report into values or refuses it, ``verdict`` judges the reports of one run. Pure: a run is what
was received when, so that the verdict depends on nothing but the reports (invariant 41).
"""

from kcover.preflight.reading import Batch, Report, ReportRefused, batches_of, bus_bandwidth, read
from kcover.preflight.verdict import (
    CHANGES,
    COLLECTED_WITHIN,
    STATES,
    Change,
    Head,
    Received,
    Run,
    Verdict,
    change,
    expired,
    judge,
    receive,
)

__all__ = [
    "CHANGES",
    "COLLECTED_WITHIN",
    "STATES",
    "Batch",
    "Change",
    "Head",
    "Received",
    "Report",
    "ReportRefused",
    "Run",
    "Verdict",
    "batches_of",
    "bus_bandwidth",
    "change",
    "expired",
    "judge",
    "read",
    "receive",
]
