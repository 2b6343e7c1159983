"""Building the reports that an agent sends."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from agents import VERSION
from kcover import wire
from kcover.faults import xid
from kcover.faults.fault import Check, CommandResult, Fault, Inventory
from kcover.nodes.gpu_figures import NO_FIGURES, Figures

FAULTS_PER_REPORT = 32  # with the longest messages, escaped, a report stays under the 1 MiB of the wire format
CHECKS_PER_REPORT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingReport:
    """A report ready to send. ``body``: JSON in the wire format. ``spooled``: it is kept in the spool; a heartbeat is
    not. ``figures_at``: when the figures in it were taken; None: it has none."""

    batch_id: str
    body: bytes
    boot_id: str
    spooled: bool = False
    results: tuple[str, ...] = ()
    inventory: Inventory | None = None
    figures_at: datetime | None = None


def findings_report(
    node: str, faults: Sequence[Fault], checks: Sequence[Check] = (), *, boot_id: str, now: datetime
) -> dict[str, Any]:
    """A report of faults and check results, encoded for the spool."""
    return wire.encode(_report(node, boot_id=boot_id, now=now, faults=tuple(faults), checks=tuple(checks)))


def from_spool(report: Mapping[str, Any], *, now: datetime) -> OutgoingReport:
    """A spooled report, ready to send."""
    sent_at = now.astimezone(UTC).isoformat().replace("+00:00", "Z")
    body = _dump({**report, "sent_at": sent_at})
    return OutgoingReport(batch_id=report["batch_id"], body=body, boot_id=report["boot_id"], spooled=True)


def heartbeat(
    node: str,
    *,
    boot_id: str,
    inventory: Inventory | None,
    results: tuple[CommandResult, ...],
    figures: Figures = NO_FIGURES,
    now: datetime,
) -> OutgoingReport:
    """A report that says the agent is alive.

    It carries the ``inventory`` if it changed, the ``results`` of commands, and ``figures`` by GPU and name.
    """
    report = _report(node, boot_id=boot_id, now=now, inventory=inventory, command_results=results, figures=figures)
    return OutgoingReport(
        batch_id=report.batch_id,
        body=_dump(wire.encode(report)),
        boot_id=boot_id,
        results=tuple(result.id for result in results),
        inventory=inventory,
        figures_at=now if figures else None,
    )


def fault_batches(faults: Sequence[Fault]) -> list[tuple[Fault, ...]]:
    """The faults, split so that each part fits into one report."""
    return [tuple(faults[start : start + FAULTS_PER_REPORT]) for start in range(0, len(faults), FAULTS_PER_REPORT)]


def check_batches(checks: Sequence[Check]) -> list[tuple[Check, ...]]:
    """The check results, split so that each part fits into one report."""
    return [tuple(checks[start : start + CHECKS_PER_REPORT]) for start in range(0, len(checks), CHECKS_PER_REPORT)]


def with_gpu_uuid(faults: Sequence[Fault], inventory: Inventory | None) -> list[Fault]:
    """The faults; Xids also get the UUID of the GPU in their PCI slot."""
    by_slot = {xid.slot(gpu.pci): gpu.uuid for gpu in inventory.gpus if gpu.pci} if inventory else {}
    return [_with_uuid(fault, by_slot) for fault in faults]


def log_fields(fault: Fault) -> tuple[object, ...]:
    """The values for a log line: kind, code, PCI slot, count, and " drill" for a drill."""
    return fault.kind, fault.code, fault.pci, fault.count, " drill" if fault.drill else ""


def _with_uuid(fault: Fault, by_slot: Mapping[str | None, str]) -> Fault:
    uuid = by_slot.get(xid.slot(fault.pci)) if fault.pci and fault.kind == "xid" else None
    return replace(fault, gpu_uuid=uuid) if uuid else fault


def _report(node: str, *, boot_id: str, now: datetime, **content: Any) -> wire.Report:
    """A report with a new batch ID."""
    batch_id = str(uuid.uuid4())
    return wire.Report(node=node, boot_id=boot_id, batch_id=batch_id, agent=VERSION, sent_at=now, **content)


def _dump(report: Mapping[str, Any]) -> bytes:
    return json.dumps(report, separators=(",", ":")).encode()
