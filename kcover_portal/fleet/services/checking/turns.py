"""A node's turn: its results, and how it ends."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from kcover import autopilot, fault
from kcover_portal.fleet.models import CheckTurn, Command

CALM = ([autopilot.OK], [autopilot.NOT_CHECKED])
HEARD_WITHIN = timedelta(minutes=1)  # on top of what the checks may take
KEY = "run-"  # begins the keys of what agents are asked for runs, and of nothing else
WRITTEN = ("state", "invasive", "command", "results", "said", "note", "asked_at", "finished_at")


def close(turn: CheckTurn, *, now: datetime, silent: str = "") -> None:
    """The turn is over. ``silent``: why nobody answered."""
    turn.finished_at = now
    turn.state, turn.note = (CheckTurn.State.SILENT, silent[:1000]) if silent else (CheckTurn.State.DONE, "")
    turn.said = [autopilot.NO_ANSWER] if silent else autopilot.failures(results_of(turn))


def results_of(turn: CheckTurn) -> list[fault.Check]:
    """The results of a turn as values."""
    return [fault.Check(**one) for one in turn.results]


def skipped(check: str, why: str) -> dict[str, Any]:
    """A check that was not run, as a turn keeps it."""
    return asdict(fault.Check(name=check, status="skipped", message=why[:1000]))


def broke(check: str, command: Command, *, device: str = "") -> dict[str, Any]:
    """A check of which the answer says nothing, as a turn keeps it."""
    why = "the agent says nothing of it"
    if command.state != Command.State.DONE:
        why = f"the agent did not run it: {command.state}: {command.message}"
    return asdict(fault.Check(name=check, status="error", device=device, message=why[:1000]))
