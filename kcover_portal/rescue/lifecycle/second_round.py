"""The second round: a fault that comes back during verification restarts the rescue (invariant 39).

The steps from the first one that takes work away are appended again, so that the first round stays readable. This
changes the plan, so an approval of the first round does not cover the second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kcover import reasons
from kcover.plans import plan
from kcover_portal.fleet import queries as fleet
from kcover_portal.lib import doorbell
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import past_rescues

MAX_ROUNDS = 2  # in one rescue: gpud reboots twice for a fault, then asks for a hardware inspection


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan with its second round. ``again``: the steps that are added; ``because``: a Reason as JSON."""

    steps: tuple[plan.PlannedStep, ...]
    plan_hash: str
    again: list[Step]
    because: dict[str, Any]


def of(rescue: Rescue, step: Step, steps: Sequence[Step], *, because: reasons.Reason, now: datetime) -> Plan | None:
    """The plan with a second round; None if the limits forbid it, or there is nothing to repeat.

    ``steps``: all of the plan, before the outcome of ``step``.
    """
    first = next((place for place, planned_step in enumerate(steps) if planned_step.takes_away), None)
    if first is None or step.round >= MAX_ROUNDS or _repairs(rescue, now=now) >= _max_repairs(rescue):
        return None
    booted = (planned_step.typed_progress.new_boot for planned_step in reversed(steps))
    boot_id = next((found for found in booted if found), "")
    again = [
        Step(
            rescue=rescue,
            index=len(steps) + n,
            name=planned_step.name,
            args=planned_step.args,
            round=step.round + 1,
            progress=planned_step.spec.progress.initial(boot_id=boot_id).to_json(),
        )
        for n, planned_step in enumerate(steps[first:])
    ]
    planned = tuple(plan.PlannedStep(name=row.name, args=row.args) for row in [*steps, *again])
    starting_over = reasons.of("starting_over", why=because).to_json()
    return Plan(steps=planned, plan_hash=plan.digest(planned), again=again, because=starting_over)


def begin(rescue: Rescue, step: Step, round_: Plan, *, now: datetime) -> None:
    """Cancels the steps after ``step``, adds those of the second round, and wakes the rescue.

    Part of the transaction that writes the new plan's hash into the rescue's row.
    """
    rescue.steps.filter(index__gt=step.index).update(
        state=Step.State.CANCELLED, because=round_.because, finished_at=now
    )
    Step.objects.bulk_create(round_.again)
    doorbell.ring("rescue.run", rescue.pk)


def _repairs(rescue: Rescue, *, now: datetime) -> int:
    """Automatic reboots and GPU resets of the node within the window of the ``repeats`` guard, this round included."""
    since = now - fleet.guards_of(rescue.cluster).repeats.window
    lately = Rescue.objects.filter(node=rescue.node, opened_at__gte=since)
    return past_rescues.repairs(lately, since=since)


def _max_repairs(rescue: Rescue) -> int:
    return fleet.guards_of(rescue.cluster).repeats.limit
