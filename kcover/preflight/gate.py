"""The preflight gate of a node: whether its last pair tests say that it may take a large job.

``passed``: a plan found the node clean, on this machine, not longer than GATE_AGE ago. ``failed``: an incident of
preflight is open on it. Everything else is ``unknown``: silence never means health.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

LABEL: Final = "kcover.io/preflight"
GATE_AGE: Final = timedelta(days=7)  # after which a result says little about the node


class Gate(StrEnum):
    """The state of a gate; also the value of the label, which a node of state UNKNOWN does not have."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


def state(*, failed: bool, passed_at: datetime | None, same_machine: bool, now: datetime) -> Gate:
    """The gate. ``failed``: an incident is open. ``passed_at``: of its last plan; None: it did not pass."""
    if failed:
        return Gate.FAILED
    if passed_at is not None and same_machine and now < passed_at + GATE_AGE:
        return Gate.PASSED
    return Gate.UNKNOWN


def label(gate: Gate) -> str | None:
    """The value of the label; None: the node has none."""
    return None if gate is Gate.UNKNOWN else gate.value
