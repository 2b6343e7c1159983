"""The step that follows: whether it may begin, and the end of a rescue that has no step left."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from kcover import audit, reasons
from kcover.plans import lifecycle
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue.control import approvals
from kcover_portal.rescue.engine import expiry
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.lifecycle.create import Ending
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import own_rows


def unfinished(steps: Sequence[Step]) -> Step | None:
    """The first of the steps that is not finished."""
    return next((step for step in steps if step.state not in lifecycle.FINISHED_STEP), None)


def begin(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Reserves an attempt of the step.

    Returns False if the step still needs approval (the rescue is held), or if it is too late or the fault has cleared
    (the rescue ends).
    """
    if expiry.end_if_expired(rescue, step, now=now):
        return False
    if approvals.end_if_healed(rescue, step, now=now):
        return False
    if not approvals.granted(rescue, step, now=now):
        # A pending request for approval keeps its deadline: checking it again does not extend it.
        pending = rescue.expires_at is not None and rescue.expires_at > now
        until = rescue.expires_at if pending else now + timedelta(seconds=rescue.approval_seconds)
        waiting = create.awaiting_approval(until or now)
        if own_rows.CLAIMS.write(rescue, **waiting):
            ledger.append(rescue.cluster.name, [held(rescue, step, because=waiting["because"], now=now)])
        doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)
        return False
    if step.state == Step.State.PENDING:
        doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)
    step.reserve(now=now)
    own_rows.save_step(step, "attempts", "started_at", "state")
    return True


def held(rescue: Rescue, step: Step, *, because: dict[str, Any], now: datetime) -> ledger.Draft:
    """The entry of a rescue that asks for the approval of its step. ``because``: a Reason as JSON."""
    act = audit.RescueHeld(
        rescue=rescue.pk,
        node=rescue.node.name,
        step=step.index,
        name=step.name,
        because=reasons.kept(because),
    )
    return ledger.Draft(act=act, actor=f"rescue {rescue.pk}", at=now)


def ending_of(rescue: Rescue, steps: Sequence[Step]) -> Ending:
    """The ending of a rescue whose steps are all finished."""
    done = [step.spec for step in steps if step.state == Step.State.DONE]
    escalated = next((step for step in steps if step.spec.calls_person), None)
    if escalated is not None:
        message = str(escalated.args.get("message", ""))
        because = reasons.of("escalated", message=message) if message else None
        return Ending(state="succeeded", outcome="escalated", because=because, needs_human=True)
    if rescue.origin == Rescue.Origin.MANUAL:
        return Ending(state="succeeded", outcome="done")
    if any(spec.returns_node for spec in done):
        because = reasons.of("healed_but_cordoned" if _stays_cordoned(steps) else "in_service_again")
        return Ending(state="succeeded", outcome="healed", because=because)
    if not any(spec.isolates for spec in done):
        return Ending(state="succeeded", outcome="done", because=reasons.of("done_in_service"))
    isolation = _isolation(step for step in steps if step.state == Step.State.DONE and step.spec.isolates)
    return Ending(state="succeeded", outcome="isolated", because=isolation)


def _stays_cordoned(steps: Iterable[Step]) -> bool:
    """Returns whether a step found somebody else's cordon on the node and left it there."""
    told = (step.why for step in steps if step.spec.returns_node and step.state == Step.State.DONE)
    return any(reasons.says(why, "foreign_cordon_kept") for why in told)


def _isolation(steps: Iterable[Step]) -> reasons.Reason:
    """What stays isolated: the node, or only parts of it."""
    parts = [step.typed_progress.isolated_part for step in steps]
    return reasons.of("done_part_isolated", part=", ".join(parts)) if all(parts) else reasons.of("done_isolated")
