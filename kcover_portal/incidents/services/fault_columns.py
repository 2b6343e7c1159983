"""The columns of an incident that a fault sets: its identity within a node, its severity, cause and message."""

from collections.abc import Mapping, Sequence
from typing import Any

from kcover.faults import catalog, driver_line, fault, line_reading
from kcover.faults.line_reading import LineReading
from kcover.faults.weight import Weight
from kcover_portal.incidents.services.portal_fault import because_of
from kcover_portal.incidents.services.source_fault import SourceFault, device_of

Identity = tuple[str, str, str]  # kind, code and device of a fault
FaultColumns = Mapping[str, Any]  # of an incident: its severity, cause and message


def identity_of(seen: fault.Fault) -> Identity:
    """The fault's kind, code and device. A node has at most one open incident of an identity."""
    return seen.kind, str(seen.code), device_of(seen).key


def columns_of(seen: fault.Fault) -> FaultColumns:
    """The severity, cause and message according to the log line itself, or to the source that reports it."""
    line = line_reading.read(seen.message)
    if isinstance(seen, SourceFault) and seen.kind not in fault.NUMERIC_KINDS and not _is_quoted(line, seen):
        return {
            "severity": seen.severity,
            "is_user_fault": seen.weight is not Weight.NODE,
            "cause": None,
            **message_columns(seen.message, line),
            "because": {},
        }
    kind, code = (seen.kind, str(seen.code)) if seen.kind in fault.NUMERIC_KINDS else line.name
    cause, fatal = line.cause if kind == "xid" else None, line.fatal
    numeric = int(code) if kind in fault.NUMERIC_KINDS else None
    return {
        "severity": catalog.severity(kind, numeric, fatal=fatal) if numeric is not None else _severity_of(seen),
        "is_user_fault": numeric is not None and catalog.is_user_fault(kind, numeric, cause=cause, fatal=fatal),
        "cause": cause,
        **message_columns(seen.message, line),
        "because": because_of(seen),
    }


def message_columns(message: str, line: LineReading | None = None) -> dict[str, Any]:
    """The columns that a message sets: itself, and what it says as a line. ``line``: None if it is not read yet."""
    return {"message": message, "line_reading": (line or line_reading.read(message)).to_json(message)}


def _severity_of(seen: fault.Fault) -> str:
    """The severity of a fault without a number."""
    return driver_line.SEVERITIES.get(str(seen.code), "warning") if seen.kind == driver_line.KIND else "warning"


def _is_quoted(line: LineReading, seen: SourceFault) -> bool:
    """Returns whether the source quotes the kernel's line about the Xid that its report stands for."""
    return line.fault != "" and seen.alias == line.fault


def worst(current: FaultColumns, seen: Sequence[fault.Fault], *, drill: bool) -> FaultColumns:
    """The columns of the worst of these faults and ``current``; ``current`` itself if no fault is worse.

    Of one code, some faults are fatal and some are caused by a user's program. Sources say how bad theirs are; the
    kernel's line outweighs them, for better and for worse. A drill does not change the columns of real faults.
    """
    for reported in seen:
        varies = reported.kind in fault.NUMERIC_KINDS or isinstance(reported, SourceFault)
        if varies and (drill or not reported.drill):
            columns = columns_of(reported)
            ours, theirs = is_of_kernel(columns), is_of_kernel(current)
            if ours > theirs or (ours == theirs and weight(columns) > weight(current)):
                current = columns
        drill = drill and reported.drill
    return current


def is_of_kernel(columns: FaultColumns) -> bool:
    """Returns whether the columns are of a line of the kernel about an Xid or SXid."""
    return line_reading.kept(columns["line_reading"], columns["message"]).fault != ""


def worst_of(seen: Sequence[fault.Fault]) -> FaultColumns:
    """The columns of the worst of these faults, of which there is at least one."""
    first, *others = seen
    return worst(columns_of(first), others, drill=first.drill)


def weight(columns: FaultColumns) -> tuple[bool, int]:
    """Orders columns: faults of the node after those of users' programs, then by severity."""
    severity = columns["severity"]
    return not columns["is_user_fault"], catalog.SEVERITIES.index(severity) if severity in catalog.SEVERITIES else -1
