"""What the nodes of a run answered: read with suspicion, kept in their turns."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db.models import Q

from kcover import fault
from kcover_portal.fleet.models import CheckRun, CheckTurn, Command
from kcover_portal.fleet.services.checking import rings, turns

MOST_RESULTS = 200  # that an agent puts into one answer: the good ones beyond are not told
UNANSWERED = (Command.State.OFFERED, Command.State.EXPIRED)


def settle(run: CheckRun, *, now: datetime) -> list[CheckTurn]:
    """Takes in the answers to what was asked; returns the turns that ended so. Who is in a ring stays in it."""
    pending = Q(command__state=Command.State.OFFERED, command__expires_at__gt=now)
    rows = run.turns.filter(state=CheckTurn.State.ASKED).exclude(pending).select_related("command").order_by("place")
    taken = [turn for turn in rows if turn.command is not None or not rings.has(run, turn)]
    for turn in taken:
        _take(run, turn, turn.command, now=now)
    CheckTurn.objects.bulk_update(taken, turns.WRITTEN, batch_size=200)
    return [turn for turn in taken if turn.finished_at is not None]


def _take(run: CheckRun, turn: CheckTurn, command: Command | None, *, now: datetime) -> None:
    if command is None or command.state in UNANSWERED:
        turns.close(turn, silent=(command.message if command else "") or "no answer in time", now=now)
        return
    found, step = _read(command), rings.is_step(command)
    turn.results = [*turn.results, *(rings.results(command, found) if step else _results(command, found))]
    if rings.has(run, turn) and not (step and rings.leaves(command, found)):
        turn.command = None  # until the next step asks it again
    else:
        turns.close(turn, now=now)


def _results(command: Command, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What an agent answered; what it says nothing of broke."""
    told = {one["name"] for one in found}
    missing = [check for check in command.args["checks"] if check not in told] if len(found) < MOST_RESULTS else []
    return [*found, *(turns.broke(check, command) for check in missing)]


def _read(command: Command) -> list[dict[str, Any]]:
    """The results in an agent's answer, as far as they can be read."""
    listed = command.output.get("checks") if command.state == Command.State.DONE else None
    return [_result(one) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _result(one: Mapping[str, Any]) -> dict[str, Any]:
    status = one.get("status")
    return asdict(
        fault.Check(
            name=str(one.get("name", ""))[:64],
            device=str(one.get("device") or "")[:128],
            status=str(status) if status in fault.CHECK_STATUSES else "error",
            value=_number(one.get("value")),
            unit=str(one.get("unit") or "")[:32],
            message=str(one.get("message") or "")[:1000],
        )
    )


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number may have hundreds of digits
        return None
