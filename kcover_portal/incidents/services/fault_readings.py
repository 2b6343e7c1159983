"""Reads faults: their identity within a node, and the severity and cause in the log line."""

from collections.abc import Mapping, Sequence
from typing import Any

from kcover.faults import catalog, fault, nvlink5, xid
from kcover_portal.incidents.services.portal_fault import because_of
from kcover_portal.incidents.services.source_fault import SourceFault

Identity = tuple[str, str, str]  # kind, code and device of a fault
Reading = Mapping[str, Any]  # columns of an incident


def identity_of(seen: fault.Fault) -> Identity:
    """The fault's kind, code and device. A node has at most one open incident of an identity."""
    return seen.kind, str(seen.code), _device(seen)


def _device(seen: fault.Fault) -> str:
    """The device's key within its node: the slot if it was printed, so that a replaced GPU keeps its incident."""
    if seen.pci:
        return xid.slot(seen.pci) or seen.pci.lower()
    return seen.gpu_uuid or ""


def reading_of(seen: fault.Fault) -> Reading:
    """The severity, cause and message according to the log line itself, or to the source that reports it."""
    if isinstance(seen, SourceFault) and seen.kind not in fault.NUMERIC_KINDS:
        return {
            "severity": seen.severity,
            "is_user_fault": seen.is_program,
            "cause": None,
            "message": seen.message,
            "because": {},
        }
    occurrence = xid.parse_line(seen.message)
    cause = occurrence.cause if occurrence and seen.kind == "xid" else None
    fatal = nvlink5.is_fatal(occurrence)
    numeric = int(seen.code) if seen.kind in fault.NUMERIC_KINDS else None
    return {
        "severity": catalog.severity(seen.kind, numeric, fatal=fatal) if numeric is not None else "warning",
        "is_user_fault": numeric is not None and catalog.is_user_fault(seen.kind, numeric, cause=cause, fatal=fatal),
        "cause": cause,
        "message": seen.message,
        "because": because_of(seen),
    }


def worst(current: Reading, seen: Sequence[fault.Fault], *, drill: bool) -> Reading:
    """The worst reading of these faults and ``current``; ``current`` itself if no fault is worse.

    Of one code, some faults are fatal and some are caused by a user's program. Sources say how bad theirs are. A drill
    does not change the reading of real occurrences.
    """
    for occurrence in seen:
        varies = occurrence.kind in fault.NUMERIC_KINDS or isinstance(occurrence, SourceFault)
        if varies and (drill or not occurrence.drill):
            reading = reading_of(occurrence)
            if weight(reading) > weight(current):
                current = reading
        drill = drill and occurrence.drill
    return current


def worst_of(seen: Sequence[fault.Fault]) -> Reading:
    """The worst reading of these faults, of which there is at least one."""
    first, *others = seen
    return worst(reading_of(first), others, drill=first.drill)


def weight(reading: Reading) -> tuple[bool, int]:
    """Orders readings: faults of the node after those of users' programs, then by severity."""
    severity = reading["severity"]
    return not reading["is_user_fault"], catalog.SEVERITIES.index(severity) if severity in catalog.SEVERITIES else -1
