"""Faults that other systems report through sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kcover.faults import fault, xid
from kcover.faults.device import Device
from kcover.faults.weight import Weight
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services.timed_fault import TimedFault, are_late

# An event that is older than this may be over already, and its end may follow in the same stream. Nobody acts before
# the source had SETTLING_TIME to say so.
OLD_AFTER = timedelta(minutes=10)
SETTLING_TIME = timedelta(minutes=10)
LATE_DECIDED_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFault(TimedFault):
    """A fault that a source reports. ``witness``: the name of the source. ``severity``: as the source judges it.

    ``unit`` and ``part`` name the device beside its slot and its UUID (``Device``). ``alias``: the fault that
    others may report instead, such as ``xid 79``. ``advice``: what the source recommends. ``by_number``: its slot is
    that of the GPU with its number in the last inventory. Reports of one GPU meet there, but no GPU is acted on for it.
    """

    witness: str
    severity: str = "warning"
    weight: Weight = Weight.NODE
    unit: str = ""
    part: str = ""
    alias: str = ""
    advice: str = ""
    by_number: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Everything by which another witness may report the same fault."""
        return frozenset(name for name in (f"{self.kind} {self.code}", self.alias) if name)


def device_of(seen: fault.Fault) -> Device:
    """The device that the fault is about; an address in a form of its own is a name like any other."""
    unit, part = (seen.unit, seen.part) if isinstance(seen, SourceFault) else ("", "")
    slot = xid.slot(seen.pci) or ""
    return Device(slot=slot, uuid=seen.gpu_uuid or "", unit=unit or (seen.pci or "").lower(), part=part)


def named_slot(seen: fault.Fault) -> str:
    """The slot that the report itself names; "" if it names none."""
    return "" if isinstance(seen, SourceFault) and seen.by_number else xid.slot(seen.pci) or ""


def witness_of(seen: fault.Fault) -> str:
    """The name of the source; "" for a fault of an agent or of the portal."""
    return seen.witness if isinstance(seen, SourceFault) else ""


def opening_of(seen: Sequence[fault.Fault]) -> dict[str, Any]:
    """The columns of an incident that a source opens."""
    first = seen[0]
    if not isinstance(first, SourceFault):
        return {}
    return {"alias": first.alias or f"{first.kind} {first.code}", "advice": first.advice}


def changes_of(incident: Incident, seen: Sequence[fault.Fault]) -> dict[str, Any]:
    """The columns of an open incident that further faults change: one may name an Xid where none was named before."""
    told = [one for one in seen if isinstance(one, SourceFault)]
    changes = {
        "advice": next((one.advice for one in reversed(told) if one.advice), ""),
        "alias": next((one.alias for one in told if one.alias), ""),
    }
    if incident.alias != f"{incident.kind} {incident.code}":
        del changes["alias"]  # it names one already, or an agent opened it
    return {column: value for column, value in changes.items() if value}


def first_decision(seen: Sequence[fault.Fault], *, now: datetime) -> datetime:
    """The first decision time of an incident of these faults: at once, unless a source reports old events only.

    What was told late has time until the watch has shown that its boot is over.
    """
    if are_late(seen):
        return now + LATE_DECIDED_AFTER
    is_old = all(isinstance(one, SourceFault) and one.seen_at and one.seen_at < now - OLD_AFTER for one in seen)
    waits = [one.decide_from for one in seen if isinstance(one, TimedFault) and one.decide_from is not None]
    at_once = now + SETTLING_TIME if is_old else now
    return max(at_once, min(waits)) if len(waits) == len(seen) else at_once
