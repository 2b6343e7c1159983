"""What of many equal findings is news: pure, no I/O, no clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from agents.probes.finding import Finding
from kcover.fault import Check, Fault
from kcover.wire import fields

REFRESH = timedelta(hours=1)  # an unchanged result is told again, so that nobody takes silence for health
SETTLE = timedelta(minutes=10)  # a result that is not a pass is told again this often while its words or value move
AGAIN = timedelta(minutes=10)  # a fault that is still true is told again: a rescue may have closed its incident


@dataclass(slots=True)
class _Told:
    check: Check
    at: datetime
    fault_at: datetime | None = None


class Changes:
    """Remembers what was told about each check and device. After a restart everything is news once."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], _Told] = {}

    def news(
        self, findings: Iterable[Finding], *, now: datetime, source: str = "check"
    ) -> tuple[list[Check], list[Fault]]:
        """The results to tell now, and the faults among them."""
        checks: list[Check] = []
        faults: list[Fault] = []
        for one in findings:
            key = one.check.name, one.check.device
            told = self._told.get(key)
            if told is None or self._is_news(told, one.check, now=now):
                fault_at = told.fault_at if told else None
                told = self._told[key] = _Told(one.check, now, fault_at)
                checks.append(one.check)
            if not one.fault:
                told.fault_at = None
            elif told.fault_at is None or not timedelta() <= now - told.fault_at < AGAIN:
                told.fault_at = now
                faults.append(fault_of(one, now=now, source=source))
        return checks, faults

    @staticmethod
    def _is_news(told: _Told, check: Check, *, now: datetime) -> bool:
        if told.check.status != check.status:
            return True
        age = now - told.at
        if not timedelta() <= age < REFRESH:
            return True
        moved = (told.check.message, told.check.value) != (check.message, check.value)
        return check.status != "pass" and moved and age >= SETTLE


def fault_of(one: Finding, *, now: datetime, source: str) -> Fault:
    """The failed check as a fault: kind ``check``, its name the code."""
    check = one.check
    return Fault(
        kind="check",
        code=check.name,
        pci=one.pci,
        gpu_uuid=check.device if check.device.startswith("GPU-") else None,
        message=check.message[: fields.MAX_MESSAGE],
        seen_at=now,
        source=source,
    )
