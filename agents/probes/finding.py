"""What a probe says: how things are, and what of it is a fault of the node."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from kcover.fault import Check, Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check result. ``fault``: where it fails, the node has a fault (reported as one, kind ``check``), and not only
    a number worth showing. ``pci``: the slot of the GPU that it is about, as the kernel log prints it."""

    check: Check
    fault: bool = False
    pci: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one look found. ``faults``: seen beside the findings, such as an Xid that the driver told of; reported each
    time they are given."""

    findings: tuple[Finding, ...] = ()
    faults: tuple[Fault, ...] = ()


class Probe(Protocol):
    """Looks at one side of the node. One object, one thread: it may keep what it saw for the next look.

    ``every``: seconds between looks. ``deadline``: seconds after which a look counts as late, and from four times as
    many on as hung. ``hung_is_fault``: whether a hung look is a fault of the node (a driver that does not answer) or
    only of the probe.
    """

    name: str
    every: float
    deadline: float
    hung_is_fault: bool

    def look(self, now: datetime) -> Reading:
        """How things are. May raise anything (told as ``error``: the probe broke, not the node), and may hang."""


def finding(
    name: str,
    bad: bool | str,
    *,
    device: str = "",
    value: float | None = None,
    unit: str = "",
    message: str = "",
    fault: bool = False,
    pci: str | None = None,
) -> Finding:
    """A finding from a yes or no: ``bad`` True is a fail, or it names the status. A pass says no ``message``."""
    status = bad if isinstance(bad, str) else "fail" if bad else "pass"
    shown = "" if status == "pass" else message
    check = Check(name=name, status=status, device=device, value=value, unit=unit, message=shown)
    return Finding(check=check, fault=fault and status == "fail", pci=pci)


def enough(name: str, there: int, wanted: int, *, words: str = "answer") -> Finding:
    """Whether as many GPUs are there as must be (``agents.gpu_count``), and how to say that no more are meant to be."""
    message = f"{there} of {wanted} GPUs {words}; if fewer are meant to be there, set KCOVER_AGENT_GPUS={there}"
    return finding(name, there < wanted, value=there, unit="GPUs", message=message, fault=True)


def labelled(values: Mapping[str, object]) -> str:
    """``a=1, b=2``, sorted."""
    return ", ".join(f"{key}={values[key]}" for key in sorted(values))
