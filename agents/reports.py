"""The reports that an agent sends: what goes into one, and how they are written."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from agents import VERSION
from kcover import wire, xid
from kcover.fault import Check, CommandResult, Fault, Inventory

PER_BATCH = 32  # faults in a report: with the longest messages, escaped, it stays under the wire's 1 MiB
CHECKS_PER_BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One report on its way. ``body``: JSON of the wire format; ``spooled``: it waits in the spool, a heartbeat does
    not."""

    batch_id: str
    body: bytes
    boot_id: str
    spooled: bool = False
    results: tuple[str, ...] = ()
    inventory: Inventory | None = None


def found(
    node: str, faults: Sequence[Fault], checks: Sequence[Check] = (), *, boot_id: str, now: datetime
) -> dict[str, Any]:
    """A report of what was found, as the spool keeps it."""
    return wire.encode(_report(node, boot_id=boot_id, now=now, faults=tuple(faults), checks=tuple(checks)))


def spooled(report: Mapping[str, Any], *, now: datetime) -> Outgoing:
    """One that was kept, to be sent now."""
    sent_at = now.astimezone(UTC).isoformat().replace("+00:00", "Z")
    body = _dump({**report, "sent_at": sent_at})
    return Outgoing(batch_id=report["batch_id"], body=body, boot_id=report["boot_id"], spooled=True)


def heartbeat(
    node: str, *, boot_id: str, inventory: Inventory | None, results: tuple[CommandResult, ...], now: datetime
) -> Outgoing:
    """A report that the agent is alive, with the node's ``inventory`` where it is news, and ``results`` of commands."""
    report = _report(node, boot_id=boot_id, now=now, inventory=inventory, command_results=results)
    return Outgoing(
        batch_id=report.batch_id,
        body=_dump(wire.encode(report)),
        boot_id=boot_id,
        results=tuple(result.id for result in results),
        inventory=inventory,
    )


def parts(faults: Sequence[Fault]) -> list[tuple[Fault, ...]]:
    """The faults, as many as a report can carry at a time."""
    return [tuple(faults[start : start + PER_BATCH]) for start in range(0, len(faults), PER_BATCH)]


def check_parts(checks: Sequence[Check]) -> list[tuple[Check, ...]]:
    """The check results, as many as a report can carry at a time."""
    return [tuple(checks[start : start + CHECKS_PER_BATCH]) for start in range(0, len(checks), CHECKS_PER_BATCH)]


def with_gpu(faults: Sequence[Fault], inventory: Inventory | None) -> list[Fault]:
    """The faults, Xids with the UUID of the GPU in their slot."""
    by_slot = {xid.slot(gpu.pci): gpu.uuid for gpu in inventory.gpus if gpu.pci} if inventory else {}
    return [_named(fault, by_slot) for fault in faults]


def words(fault: Fault) -> tuple[object, ...]:
    """What a log line says of the fault: kind, code, address, count, whether it is a drill."""
    return fault.kind, fault.code, fault.pci, fault.count, " drill" if fault.drill else ""


def _named(fault: Fault, by_slot: Mapping[str | None, str]) -> Fault:
    uuid = by_slot.get(xid.slot(fault.pci)) if fault.pci and fault.kind == "xid" else None
    return replace(fault, gpu_uuid=uuid) if uuid else fault


def _report(node: str, *, boot_id: str, now: datetime, **content: Any) -> wire.Report:
    """One with a batch id of its own; ``content``: what it tells."""
    batch_id = str(uuid.uuid4())
    return wire.Report(node=node, boot_id=boot_id, batch_id=batch_id, agent=VERSION, sent_at=now, **content)


def _dump(report: Mapping[str, Any]) -> bytes:
    return json.dumps(report, separators=(",", ":")).encode()
