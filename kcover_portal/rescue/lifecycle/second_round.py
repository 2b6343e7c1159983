"""The second round: a fault that comes back during verification restarts the rescue (invariant 39).

The steps from the first one that takes work away are appended again, so that the first round stays readable. This
changes the plan, so an approval of the first round does not cover the second.
"""

from datetime import datetime

from kcover import reasons
from kcover.plans import plan
from kcover_portal.fleet import queries as fleet
from kcover_portal.lib import doorbell
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import past_rescues

MAX_ROUNDS = 2  # in one rescue: gpud reboots twice for a fault, then asks for a hardware inspection


def start_over(rescue: Rescue, step: Step, *, because: reasons.Reason, now: datetime) -> bool:
    """Adds the second round; False if the limits forbid it, or there is nothing to repeat.

    Part of the caller's transaction. Nothing is written if the rescue is no longer the caller's.
    """
    steps = queries.steps_of(rescue)
    first = next((place for place, planned_step in enumerate(steps) if planned_step.takes_away), None)
    if first is None or step.round >= MAX_ROUNDS or _repairs(rescue, now=now) >= _max_repairs(rescue):
        return False
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
    planned = [plan.PlannedStep(name=planned_step.name, args=planned_step.args) for planned_step in [*steps, *again]]
    starting_over = reasons.of("starting_over", why=because).to_json()
    updated = Rescue.objects.filter(pk=rescue.pk, token=rescue.token, state=Rescue.State.RUNNING).update(
        due_at=now,
        lease_until=None,
        because=starting_over,
        plan_hash=plan.digest(planned),
        gate=None if rescue.gate is None else again[0].index,
        verified=False,
    )
    if not updated:
        return False
    rescue.steps.filter(index__gte=step.index).update(
        state=Step.State.CANCELLED, because=starting_over, finished_at=now
    )
    step.state, step.because = Step.State.CANCELLED, starting_over
    Step.objects.bulk_create(again)
    doorbell.ring("rescue.run", rescue.pk)
    return True


def _repairs(rescue: Rescue, *, now: datetime) -> int:
    """Automatic reboots and GPU resets of the node within the window of the ``repeats`` guard, this round included."""
    since = now - fleet.guards_of(rescue.cluster).repeats.window
    lately = Rescue.objects.filter(node=rescue.node, opened_at__gte=since)
    return past_rescues.repairs(lately, since=since)


def _max_repairs(rescue: Rescue) -> int:
    return fleet.guards_of(rescue.cluster).repeats.limit
