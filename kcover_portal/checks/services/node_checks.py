"""Results of one node of a run, and how its checks end."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from kcover import reasons
from kcover.checks import autopilot
from kcover.faults import fault
from kcover.reasons import Reason
from kcover_portal.checks.models import CheckTarget
from kcover_portal.fleet.models import Command

GOOD_STATUSES = ([autopilot.OK], [autopilot.NOT_CHECKED])
BECAUSE = "because"  # key of the reason in a stored result that the portal wrote itself
BUSBW = "busbw"  # key of the GB/s by message size in a stored result of an NCCL test
PICKUP_TIMEOUT = timedelta(minutes=1)  # added to the time that the checks may take
WRITTEN_FIELDS = ("state", "invasive", "command", "results", "statuses", "note", "requested_at", "finished_at")


def close(target: CheckTarget, *, now: datetime, silent: Reason | None = None) -> None:
    """Ends the checks of the node. ``silent``: why there is no answer; None: there is one."""
    target.finished_at = now
    target.state = CheckTarget.State.SILENT if silent else CheckTarget.State.DONE
    target.note = silent.to_json() if silent else {}
    target.statuses = [autopilot.NO_ANSWER] if silent else autopilot.node_status(results_of(target))


def results_of(target: CheckTarget) -> list[fault.Check]:
    """The results of a node as values."""
    return as_values(target.results)


def as_values(results: Iterable[Mapping[str, Any]]) -> list[fault.Check]:
    """Stored results as values."""
    fields = [{name: value for name, value in result.items() if name not in (BECAUSE, BUSBW)} for result in results]
    return [fault.Check(**result) for result in fields]


def stored(check: str, status: str, why: Reason, *, device: str = "") -> dict[str, Any]:
    """A result that the portal writes itself: its message is the English sentence, ``because`` is the reason."""
    return {**asdict(fault.Check(name=check, status=status, device=device)), **explained(why)}


def explained(why: Reason) -> dict[str, Any]:
    """The fields of a stored result that say why."""
    return {"message": str(why)[:1000], BECAUSE: why.to_json()}


def skipped(check: str, why: Reason) -> dict[str, Any]:
    """The stored result of a check that was not run."""
    return stored(check, "skipped", why)


def broke(check: str, command: Command, *, device: str = "") -> dict[str, Any]:
    """The stored result of a check that is missing from the agent's answer."""
    why = reasons.of("result_missing")
    if command.state != Command.State.DONE:
        why = reasons.of("check_not_run", state=reasons.state(command.state), message=command.message[:900])
    return stored(check, "error", why, device=device)
