"""One command in the journal, and its form on disk."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kcover.faults.fault import Command, CommandResult

LANES = ("acts", "reboots", "checks", "evidence")
_LANES = {
    "reboot": "reboots",
    "run_check": "checks",
    "collect_evidence": "evidence",
}  # every other kind belongs to the lane "acts"


class State(enum.StrEnum):
    """The state of a command. The values are those on disk."""

    OFFERED = "offered"  # not started; in memory only
    STARTED = "started"
    FINISHED = "finished"  # the portal may not have the result
    ACKNOWLEDGED = "acknowledged"  # the portal has the result


@dataclass(slots=True, kw_only=True)
class JournalEntry:
    """One command in the journal."""

    command: Command
    state: State
    boot_id: str = ""
    started_at: datetime | None = None
    result: CommandResult | None = None
    resend: bool = False  # acknowledged, but the portal still offers the command

    @property
    def lane(self) -> str:
        """The lane that executes the command."""
        return _LANES.get(self.command.kind, "acts")


def drop_output(entry: JournalEntry) -> None:
    """Free the output of an acknowledged result.

    It is seldom requested again, and the outputs of a week take megabytes.
    """
    if entry.result is not None:
        entry.result = replace(entry.result, output={})


def dump(entry: JournalEntry) -> dict[str, Any]:
    """The entry as JSON values."""
    command, result = entry.command, entry.result
    data: dict[str, Any] = {
        "id": command.id,
        "kind": command.kind,
        "args": dict(command.args),
        "created_at": command.created_at.isoformat(),
        "expires_at": command.expires_at.isoformat(),
        "state": entry.state.value,
        "boot_id": entry.boot_id,
        "started_at": entry.started_at.isoformat() if entry.started_at else None,
    }
    if result is not None:
        data["result"] = dump_result(result)
    return data


def dump_result(result: CommandResult) -> dict[str, Any]:
    """The result as JSON values."""
    return {
        "status": result.status,
        "message": result.message,
        "finished_at": result.finished_at.isoformat() if result.finished_at else None,
        "output": dict(result.output),
    }


def parse(data: Mapping[str, Any]) -> JournalEntry:
    """Parse the entry that ``dump`` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    command = Command(
        id=data["id"],
        kind=data["kind"],
        args=data["args"],
        created_at=datetime.fromisoformat(data["created_at"]),
        expires_at=datetime.fromisoformat(data["expires_at"]),
    )
    result = data.get("result")
    return JournalEntry(
        command=command,
        state=State(data["state"]),
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
