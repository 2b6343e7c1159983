"""Results of one node of a run, and how its checks end."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from kcover import autopilot
from kcover.faults import fault
from kcover.reasons import Reason
from kcover_portal.checks.models import CheckTarget
from kcover_portal.fleet.models import Command

GOOD_STATUSES = ([autopilot.OK], [autopilot.NOT_CHECKED])
PICKUP_TIMEOUT = timedelta(minutes=1)  # added to the time that the checks may take
WRITTEN_FIELDS = ("state", "invasive", "command", "results", "said", "note", "asked_at", "finished_at")


def close(target: CheckTarget, *, now: datetime, silent: Reason | None = None) -> None:
    """Ends the checks of the node. ``silent``: why there is no answer; None: there is one."""
    target.finished_at = now
    target.state = CheckTarget.State.SILENT if silent else CheckTarget.State.DONE
    target.note = silent.to_json() if silent else {}
    target.said = [autopilot.NO_ANSWER] if silent else autopilot.node_status(results_of(target))


def results_of(target: CheckTarget) -> list[fault.Check]:
    """The results of a node as values."""
    return [fault.Check(**result) for result in target.results]


def skipped(check: str, why: str) -> dict[str, Any]:
    """The stored result of a check that was not run."""
    return asdict(fault.Check(name=check, status="skipped", message=why[:1000]))


def broke(check: str, command: Command, *, device: str = "") -> dict[str, Any]:
    """The stored result of a check that is missing from the agent's answer."""
    why = "the agent's answer has no result for it"
    if command.state != Command.State.DONE:
        why = f"the agent did not run it: {command.state}: {command.message}"
    return asdict(fault.Check(name=check, status="error", device=device, message=why[:1000]))
