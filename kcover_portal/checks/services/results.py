"""The agents' answers to a run: validated and stored per node."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db.models import Q

from kcover import reasons
from kcover.faults import fault
from kcover.reasons import Reason
from kcover_portal.checks.models import CheckRun, CheckTarget
from kcover_portal.checks.services import iperf_rings, node_checks
from kcover_portal.fleet.models import Command

MAX_RESULTS = 200  # in one answer of an agent; good results beyond are left out by the agent
UNANSWERED = (Command.State.OFFERED, Command.State.EXPIRED)


def settle(run: CheckRun, *, now: datetime) -> list[CheckTarget]:
    """Stores the answers that have arrived. Returns the nodes that are finished. A member of a ring stays in it."""
    pending = Q(command__state=Command.State.OFFERED, command__expires_at__gt=now)
    rows = (
        run.targets.filter(state=CheckTarget.State.REQUESTED)
        .exclude(pending)
        .select_related("command")
        .order_by("place")
    )
    taken = [target for target in rows if target.command is not None or not iperf_rings.has(run, target)]
    for target in taken:
        _take(run, target, target.command, now=now)
    CheckTarget.objects.bulk_update(taken, node_checks.WRITTEN_FIELDS, batch_size=200)
    return [target for target in taken if target.finished_at is not None]


def _take(run: CheckRun, target: CheckTarget, command: Command | None, *, now: datetime) -> None:
    if command is None or command.state in UNANSWERED:
        node_checks.close(target, silent=_silence(command), now=now)
        return
    found, step = _read(command), iperf_rings.is_step(command)
    target.results = [*target.results, *(iperf_rings.results(command, found) if step else _results(command, found))]
    if iperf_rings.has(run, target) and not (step and iperf_rings.leaves(command, found)):
        target.command = None  # until the next step requests it again
    else:
        node_checks.close(target, now=now)


def _silence(command: Command | None) -> Reason:
    if command is not None and command.message:
        return reasons.of("agent_command_expired", why=command.message)
    known = reasons.kept(command.because) if command is not None else None
    return known or reasons.of("no_answer_in_time")


def _results(command: Command, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results in an answer; a requested check without a result is an error."""
    reported = {result["name"] for result in found}
    missing = [check for check in command.args["checks"] if check not in reported] if len(found) < MAX_RESULTS else []
    return [*found, *(node_checks.broke(check, command) for check in missing)]


def _read(command: Command) -> list[dict[str, Any]]:
    """The well-formed results in an agent's answer."""
    listed = command.output.get("checks") if command.state == Command.State.DONE else None
    return [_result(result) for result in listed if isinstance(result, dict)] if isinstance(listed, list) else []


def _result(data: Mapping[str, Any]) -> dict[str, Any]:
    status = data.get("status")
    return asdict(
        fault.Check(
            name=str(data.get("name", ""))[:64],
            device=str(data.get("device") or "")[:128],
            status=str(status) if status in fault.CHECK_STATUSES else "error",
            value=_number(data.get("value")),
            unit=str(data.get("unit") or "")[:32],
            message=str(data.get("message") or "")[:1000],
        )
    )


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer may have hundreds of digits
        return None
