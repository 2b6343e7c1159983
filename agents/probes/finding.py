"""The output of probes: findings, each with a severity that decides how it is handled."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from kcover.faults.fault import Check, Fault

# Takes check results and faults with the time when they were found, and reports them to the portal.
ResultSink = Callable[[Sequence[Check], Sequence[Fault], datetime], None]


class Severity(enum.StrEnum):
    """The severity of a finding. It decides the status of the check result, and whether the portal opens an incident.

    Choose ``FAULT`` only if a single observation proves that the node is broken.
    """

    OK = "ok"  # status pass
    WARNING = "warning"  # status warn: shown on the node's page
    FAILURE = "failure"  # status fail: shown as failed, opens no incident
    FAULT = "fault"  # status fail, and reported as a fault of kind `check`: opens an incident, which policies act on
    SKIPPED = "skipped"  # status skipped: the probe could not look, because a tool is missing for example
    ERROR = "error"  # status error: the probe itself broke; says nothing about the node

    def when(self, condition: bool) -> "Severity":
        """This severity if the condition holds, else ``OK``."""
        return self if condition else Severity.OK

    @property
    def status(self) -> str:
        """The status of the check result, as the wire format names it."""
        return _STATUSES[self]


_STATUSES = {
    Severity.OK: "pass",
    Severity.WARNING: "warn",
    Severity.FAILURE: "fail",
    Severity.FAULT: "fail",
    Severity.SKIPPED: "skipped",
    Severity.ERROR: "error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check result. ``is_fault``: it is also reported as a fault of the node (kind ``check``). ``pci``: the slot of
    the GPU concerned, written as in the kernel log."""

    check: Check
    is_fault: bool = False
    pci: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that one run of a probe found.

    ``faults`` are faults in addition to the findings, for example an Xid from the driver. They are reported every time.
    ``figures``: values by GPU (UUID) and name (``kcover.nodes.gpu_figures``) in addition to those of findings.
    ``repeated``: it has the findings of an earlier run again.
    """

    findings: tuple[Finding, ...] = ()
    faults: tuple[Fault, ...] = ()
    figures: Mapping[tuple[str, str], float] = field(default_factory=dict)
    repeated: bool = False


class Probe(Protocol):
    """Observes one aspect of the node. Its runs never overlap, so it may keep state from one run to the next.

    ``interval_seconds``: time between runs. ``deadline_seconds``: a run that takes longer is late (a warning), and hung
    after four times as long. ``hang_severity``: the severity of a hung run: ``FAULT`` if a driver of the node hangs,
    ``FAILURE`` if only the probe's tool does.
    """

    name: str
    interval_seconds: float
    deadline_seconds: float
    hang_severity: Severity

    def observe(self, now: datetime) -> Observation:
        """Observe the node.

        It may raise anything (reported as an ``error`` of the probe, not of the node), and may hang.
        """


def finding(
    name: str,
    severity: Severity,
    *,
    device: str = "",
    value: float | None = None,
    unit: str = "",
    message: str = "",
    pci: str | None = None,
) -> Finding:
    """A finding for the check ``name``. ``message`` explains what is wrong; it is dropped if nothing is."""
    shown = "" if severity is Severity.OK else message
    check = Check(name=name, status=severity.status, device=device, value=value, unit=unit, message=shown)
    return Finding(check=check, is_fault=severity is Severity.FAULT, pci=pci)


def gpu_count_finding(name: str, present: int, expected: int, *, state: str = "answer") -> Finding:
    """A finding that says whether enough GPUs are present. The message of a failure says how to expect fewer."""
    message = f"{present} of {expected} GPUs {state}; if the node has fewer by design, set KCOVER_AGENT_GPUS={present}"
    return finding(name, Severity.FAULT.when(present < expected), value=present, unit="GPUs", message=message)
