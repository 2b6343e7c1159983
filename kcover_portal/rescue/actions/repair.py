"""repair: open a repair at the repair desk, and wait until a passed validation closes it.

The repair and its number in the step are one transaction, so it is opened once. The portal does nothing on the node
meanwhile. A node object that is missing, because the machine is in a workshop, ends nothing.
"""

import contextlib

from django.db import transaction

from kcover import audit, reasons
from kcover.actions import repair as core
from kcover.nodes.node_stage import Stage
from kcover.repairs import repairs
from kcover_portal.kube import port
from kcover_portal.rescue.step import ladder, plan_steps, recheck_guards, repair_desk
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome, Wait

LOOK_SECONDS = 30.0  # at a repair, which takes hours


def run(context: Context) -> Outcome:
    """Opens the repair once, then waits for its end."""
    opened = context.step.progress_as(core.Progress).repair
    return _wait(context, opened) if opened else _open(context)


def _open(context: Context) -> Outcome:
    node = node_marks.expect_isolated(context)
    spared = ladder.not_needed(context, node)
    if spared is not None:
        return spared
    if plan_steps.undrained(context.steps):
        return Hold(reasons.of("not_drained_no_repair"))
    recheck_guards.storm(context.rescue, now=context.now)
    node_marks.restate(context, Stage.REPAIR)
    args, rescue = context.step.args_as(core.Args), context.rescue
    by_hand = reasons.of("repair_by_hand", by=rescue.requested_by, rescue=str(rescue.pk))
    by_rule = reasons.of("repair_by_rule", rescue=str(rescue.pk), rule=rescue.rule)
    order = repair_desk.Order(
        rescue=rescue, vendor=args.vendor, queue=args.queue, because=by_rule if rescue.rule else by_hand
    )

    def ask() -> reasons.Reason:
        with transaction.atomic():
            context.renew()  # one transaction, so that a rescue that has just ended opens nothing
            number = repair_desk.registered().open(order, now=context.now)
            context.remember(repair=number)
        return reasons.of("repair_numbered", repair=str(number))

    context.write(audit.Call.REPAIR, ask, wanted=audit.RepairOrder(vendor=args.vendor, queue=args.queue))
    return _wait(context, context.step.progress_as(core.Progress).repair)


def _wait(context: Context, opened: int) -> Outcome:
    state = repair_desk.registered().state(opened)
    if state == repairs.State.CLOSED:
        return Done(reasons.of("repair_done", repair=str(opened)))
    if not state:
        return Hold(reasons.of("repair_deleted", repair=str(opened)))
    with contextlib.suppress(port.NotFound):
        node_marks.expect_isolated(context)  # somebody may have taken the node back
    return Wait(LOOK_SECONDS, reasons.of("repair_open", repair=str(opened), state=state))
