"""Starting over: a fault that shows again while the node is verified restarts the rescue (invariant 39).

The steps from the first that takes work away are laid down once more behind the others, so that what was done stays
readable. The plan is another one then: an approval that the first round had does not cover the second.
"""

from datetime import datetime

from kcover import plan
from kcover_portal import doorbell
from kcover_portal.fleet import queries as fleet
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.services import opening

ROUNDS = 2  # of one rescue: gpud reboots twice for a fault, then the hardware is inspected


def start_over(rescue: Rescue, step: Step, *, because: str, now: datetime) -> bool:
    """Lays the second round down; False where it would be one too many, or repeats nothing.

    Part of the caller's transaction, which sees to the lease: nothing is written if the rescue is no longer the
    caller's.
    """
    steps = list(rescue.steps.order_by("index"))
    rounds = sum(one.name == step.name for one in steps)
    first = next((place for place, one in enumerate(steps) if plan.takes_away(one.name, one.args)), None)
    if first is None or rounds >= ROUNDS or _repairs(rescue, now=now) >= _most(rescue):
        return False
    boot_id = next((one.progress["boot_id"] for one in reversed(steps) if one.name == "ready" and one.progress), "")
    again = [
        Step(
            rescue=rescue,
            index=len(steps) + n,
            name=one.name,
            args=one.args,
            progress=opening.to_end(one.name, boot_id),
        )
        for n, one in enumerate(steps[first:])
    ]
    planned = [plan.PlannedStep(name=one.name, args=one.args) for one in [*steps, *again]]
    ours = Rescue.objects.filter(pk=rescue.pk, token=rescue.token, state=Rescue.State.RUNNING).update(
        due_at=now,
        lease_until=None,
        because=f"starts over: {because}"[:1000],
        plan_hash=plan.digest(planned),
        gate=None if rescue.gate is None else again[0].index,
        verified=False,
    )
    if not ours:
        return False
    rescue.steps.filter(index__gte=step.index).update(
        state=Step.State.CANCELLED, because=f"starts over: {because}"[:1000], finished_at=now
    )
    step.state, step.because = Step.State.CANCELLED, f"starts over: {because}"[:1000]
    Step.objects.bulk_create(again)
    doorbell.ring("rescue.run", rescue.pk)
    return True


def _repairs(rescue: Rescue, *, now: datetime) -> int:
    """How often automation rebooted the node, or reset a GPU of it, within the window of the guards' ``repeats``; this
    round included."""
    since = now - fleet.guards_of(rescue.cluster).repeats.window
    lately = Rescue.objects.filter(node=rescue.node, opened_at__gte=since)
    return queries.repairs(lately, plan.MENDING, since=since)


def _most(rescue: Rescue) -> int:
    return fleet.guards_of(rescue.cluster).repeats.limit
