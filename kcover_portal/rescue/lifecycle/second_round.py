"""The second round: a fault that comes back during verification restarts the rescue (invariant 39).

The steps from the first one that takes work away are added again behind the others, so that the first round stays
readable. The plan has changed then, so an approval of the first round does not cover the second.
"""

from datetime import datetime

from kcover import actions, plan, reasons
from kcover_portal import doorbell
from kcover_portal.fleet import queries as fleet
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue, Step

ROUNDS = 2  # in one rescue: gpud reboots twice for a fault, then asks for a hardware inspection


def start_over(rescue: Rescue, step: Step, *, because: reasons.Reason, now: datetime) -> bool:
    """Adds the second round; False where the limits forbid it, or there is nothing to repeat.

    Part of the caller's transaction. Nothing is written if the rescue is no longer the caller's.
    """
    steps = list(rescue.steps.order_by("index"))
    first = next((place for place, one in enumerate(steps) if one.takes_away), None)
    if first is None or step.round >= ROUNDS or _repairs(rescue, now=now) >= _most(rescue):
        return False
    booted = (one.typed_progress.new_boot for one in reversed(steps))
    boot_id = next((found for found in booted if found), "")
    again = [
        Step(
            rescue=rescue,
            index=len(steps) + n,
            name=one.name,
            args=one.args,
            round=step.round + 1,
            progress=one.spec.progress.initial(boot_id=boot_id).to_json(),
        )
        for n, one in enumerate(steps[first:])
    ]
    planned = [plan.PlannedStep(name=one.name, args=one.args) for one in [*steps, *again]]
    starting_over = reasons.of("starting_over", why=because).to_json()
    ours = Rescue.objects.filter(pk=rescue.pk, token=rescue.token, state=Rescue.State.RUNNING).update(
        due_at=now,
        lease_until=None,
        because=starting_over,
        plan_hash=plan.digest(planned),
        gate=None if rescue.gate is None else again[0].index,
        verified=False,
    )
    if not ours:
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
    return queries.repairs(lately, actions.names(lambda spec: spec.mends), since=since)


def _most(rescue: Rescue) -> int:
    return fleet.guards_of(rescue.cluster).repeats.limit
