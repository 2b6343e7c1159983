"""Select the repeated findings that are worth reporting. Pure: no I/O, no clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from agents.probes.finding import Finding
from kcover.faults.fault import Check, Fault
from kcover.wire import fields

REPEAT_UNCHANGED_AFTER = timedelta(hours=1)  # so that silence is never mistaken for health
REPEAT_MOVING_AFTER = timedelta(minutes=10)  # a result other than pass, while its message or value changes
REPEAT_FAULT_AFTER = timedelta(minutes=10)  # a fault that persists: a rescue may have closed its incident


@dataclass(slots=True)
class _Reported:
    """The latest report of one check on one device; ``fault_at``: when it last was a fault."""

    check: Check
    at: datetime
    fault_at: datetime | None = None


class ChangeFilter:
    """Remembers what was reported for each check and device. After a restart everything is reported once."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, str], _Reported] = {}

    def select(
        self, findings: Iterable[Finding], *, now: datetime, source: str = "check"
    ) -> tuple[list[Check], list[Fault]]:
        """The check results to report now, and the faults among the findings."""
        checks: list[Check] = []
        faults: list[Fault] = []
        for finding in findings:
            key = finding.check.name, finding.check.device
            last = self._reported.get(key)
            if last is None or self._is_due(last, finding.check, now=now):
                fault_at = last.fault_at if last else None
                last = self._reported[key] = _Reported(finding.check, now, fault_at)
                checks.append(finding.check)
            if not finding.is_fault:
                last.fault_at = None
            elif last.fault_at is None or not timedelta() <= now - last.fault_at < REPEAT_FAULT_AFTER:
                last.fault_at = now
                faults.append(fault_from(finding, now=now, source=source))
        return checks, faults

    @staticmethod
    def _is_due(last: _Reported, check: Check, *, now: datetime) -> bool:
        if last.check.status != check.status:
            return True
        age = now - last.at
        if not timedelta() <= age < REPEAT_UNCHANGED_AFTER:
            return True
        moved = (last.check.message, last.check.value) != (check.message, check.value)
        return check.status != "pass" and moved and age >= REPEAT_MOVING_AFTER


def fault_from(finding: Finding, *, now: datetime, source: str) -> Fault:
    """The failed check as a fault: kind ``check``, with the check's name as its code."""
    check = finding.check
    return Fault(
        kind="check",
        code=check.name,
        pci=finding.pci,
        gpu_uuid=check.device if check.device.startswith("GPU-") else None,
        message=check.message[: fields.MAX_MESSAGE],
        seen_at=now,
        source=source,
    )
