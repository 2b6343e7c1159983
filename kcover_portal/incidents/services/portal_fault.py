"""Faults that the portal finds itself: their message is a reason instead of a log line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kcover import reasons
from kcover.faults import fault
from kcover_portal.incidents.services.timed_fault import TimedFault


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalFault(TimedFault):
    """A fault that the portal found. ``because`` says what it found; ``message`` is its English sentence.

    ``earliest``: when the test began that found it.
    """

    because: reasons.Reason
    message: str = field(init=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", str(self.because))


def because_of(seen: fault.Fault) -> Mapping[str, Any]:
    """The reason of a fault, as an incident and its occurrences keep it; {} if its message is a log line."""
    return seen.because.to_json() if isinstance(seen, PortalFault) else {}
