"""One command in the journal, and how it is written down."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kcover.fault import Command, CommandResult

LANES = ("acts", "reboots", "checks")
_LANES = {"reboot": "reboots", "run_check": "checks"}  # everything else acts


@dataclass(slots=True, kw_only=True)
class Entry:
    """One command in the journal. ``state``: offered (not begun, in memory only), started, finished (result not known
    to be told), told."""

    command: Command
    state: str
    boot_id: str = ""
    started_at: datetime | None = None
    result: CommandResult | None = None
    again: bool = False  # told, but the portal offers it still

    @property
    def lane(self) -> str:
        """Where it is executed."""
        return _LANES.get(self.command.kind, "acts")


def slim(entry: Entry) -> None:
    """A told result's output is seldom asked for again, and a week of them would take megabytes."""
    if entry.result is not None:
        entry.result = replace(entry.result, output={})


def dump(entry: Entry) -> dict[str, Any]:
    """The entry as JSON's values."""
    command, result = entry.command, entry.result
    data: dict[str, Any] = {
        "id": command.id,
        "kind": command.kind,
        "args": dict(command.args),
        "created_at": command.created_at.isoformat(),
        "expires_at": command.expires_at.isoformat(),
        "state": entry.state,
        "boot_id": entry.boot_id,
        "started_at": entry.started_at.isoformat() if entry.started_at else None,
    }
    if result is not None:
        data["result"] = dump_result(result)
    return data


def dump_result(result: CommandResult) -> dict[str, Any]:
    """The result as JSON's values."""
    return {
        "status": result.status,
        "message": result.message,
        "finished_at": result.finished_at.isoformat() if result.finished_at else None,
        "output": dict(result.output),
    }


def parse(data: Mapping[str, Any]) -> Entry:
    """What ``dump`` gave, read back. Raises KeyError, TypeError or ValueError for anything else."""
    command = Command(
        id=data["id"],
        kind=data["kind"],
        args=data["args"],
        created_at=datetime.fromisoformat(data["created_at"]),
        expires_at=datetime.fromisoformat(data["expires_at"]),
    )
    result = data.get("result")
    return Entry(
        command=command,
        state=data["state"],
        boot_id=data["boot_id"],
        started_at=_time(data["started_at"]),
        result=result
        and CommandResult(
            id=command.id,
            status=result["status"],
            message=result["message"],
            finished_at=_time(result["finished_at"]),
            output=result["output"],
        ),
    )


def _time(value: str | None) -> datetime | None:
    return datetime.fromisoformat(value) if value else None
