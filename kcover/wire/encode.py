"""Encode messages as objects for ``json.dumps`` that ``decode`` accepts.

Free text is cut to its limit, and characters that a database cannot store are replaced, because a fault must not be
lost over an odd process name. Everything else is written as it is; None is left out.
"""

import re
from datetime import UTC, datetime
from typing import Any

from kcover.faults.fault import Check, Command, CommandResult, Fault, Gpu, Inventory, Nic
from kcover.wire import fields
from kcover.wire.messages import Answer, Report

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def encode(report: Report) -> dict[str, Any]:
    """A report as a JSON object. Raises ValueError for a time without an offset."""
    return _without_none(
        version=report.version,
        node=report.node,
        boot_id=report.boot_id,
        batch_id=report.batch_id,
        agent=_fit(report.agent, 64),
        sent_at=_time(report.sent_at),
        inventory=_inventory(report.inventory) if report.inventory is not None else None,
        faults=[_fault(fault) for fault in report.faults],
        checks=[_check(check) for check in report.checks],
        command_results=[_result(result) for result in report.command_results] or None,
        figures={gpu: dict(values) for gpu, values in report.figures.items()} or None,
    )


def encode_answer(answer: Answer) -> dict[str, Any]:
    """An answer as a JSON object."""
    return {
        "accepted": answer.accepted,
        "duplicates": answer.duplicates,
        "rejected": [{"path": item.path, "code": item.code, "reason": item.reason} for item in answer.rejected],
        "commands": [encode_command(command) for command in answer.commands],
    }


def encode_command(command: Command) -> dict[str, Any]:
    """A command as a JSON object. Raises ValueError for a time without an offset."""
    return {
        "id": command.id,
        "kind": command.kind,
        "args": dict(command.args),
        "created_at": _time(command.created_at),
        "expires_at": _time(command.expires_at),
    }


def _inventory(inventory: Inventory) -> dict[str, Any]:
    return _without_none(
        driver=_fit(inventory.driver, 64),
        kernel=_fit(inventory.kernel, 128),
        gpus=[_gpu(gpu) for gpu in inventory.gpus],
        machine_serial=_fit(inventory.machine_serial, 64) or None,
        board_serial=_fit(inventory.board_serial, 64) or None,
        nics=[_nic(nic) for nic in inventory.nics] or None,
    )


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return _without_none(
        index=gpu.index, uuid=gpu.uuid, pci=gpu.pci, model=_fit(gpu.model, 128), serial=_fit(gpu.serial, 64)
    )


def _nic(nic: Nic) -> dict[str, Any]:
    return _without_none(serial=_fit(nic.serial, 64), name=_fit(nic.name, 64), pci=nic.pci, model=_fit(nic.model, 128))


def _fault(fault: Fault) -> dict[str, Any]:
    return _without_none(
        kind=fault.kind,
        code=fault.code,
        pci=fault.pci,
        gpu_uuid=fault.gpu_uuid,
        message=_fit(fault.message, fields.MAX_MESSAGE),
        seen_at=_time(fault.seen_at),
        source=fault.source,
        sequence=fault.sequence,
        drill=fault.drill,
        count=fault.count,
        records=[list(pair) for pair in fault.records] or None,
        lines_before=_fit(fault.lines_before, fields.MAX_LINES_BEFORE) or None,
    )


def _check(check: Check) -> dict[str, Any]:
    return _without_none(
        name=check.name,
        device=_fit(check.device, 128),
        status=check.status,
        value=check.value,
        unit=_fit(check.unit, 32),
        message=_fit(check.message, fields.MAX_MESSAGE),
    )


def _result(result: CommandResult) -> dict[str, Any]:
    return _without_none(
        id=result.id,
        status=result.status,
        message=_fit(result.message, fields.MAX_MESSAGE),
        finished_at=_time(result.finished_at),
        output=dict(result.output),
    )


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _fit(text: str, limit: int) -> str:
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[:limit])


def _time(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    if moment.utcoffset() is None:
        raise ValueError(f"a time without an offset: {moment}")
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
