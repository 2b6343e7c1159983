"""uncordon: the node takes work again; one patch removes the portal's cordon, taints, label and mark (invariant 22).

On probation, the same patch adds the taint: at no moment may ordinary work be scheduled on the node (invariant 50).
"""

from dataclasses import replace
from datetime import timedelta

from django.db import transaction

from kcover import audit, reasons
from kcover.actions import uncordon as core, validate
from kcover.nodes import probation, readiness_taint
from kcover.plans import lifecycle
from kcover_portal.fleet.models import Node
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.models import Probation
from kcover_portal.rescue.queries import probations
from kcover_portal.rescue.step import plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks, probation_marks
from kcover_portal.rescue.step.outcomes import Done, Failed, Outcome

PLANNED_LOOK = timedelta(seconds=60)  # until a worker looks whether the rescue still returns the node


def run(context: Context) -> Outcome:
    """Reverts what the portal did; ``foreign`` (an operator's button) also lifts someone else's cordon."""
    args = context.step.args_as(core.Args)
    if args.first_work:
        return _first_work(context)
    if not args.probation:
        return node_marks.take_back(context, audit.Call.UNCORDON, foreign=args.foreign, first_work=args.foreign)
    row = Probation.objects.filter(rescue=context.rescue).first()
    choice = probation.Choice(timedelta(seconds=row.seconds), row.basis) if row is not None else _choose(context, args)
    if not choice.length:
        removed = node_marks.take_back(context, audit.Call.UNCORDON, foreign=args.foreign)
        return replace(
            removed, reason=reasons.both(removed.reason, reasons.of("no_probation_needed", why=choice.because))
        )
    return _return(context, choice, foreign=args.foreign)


def _first_work(context: Context) -> Outcome:
    """Removes the readiness taint after the validation of this plan passed, or a named person skipped it."""
    proof = plan_steps.named(context.steps, validate.SPEC.name)
    if proof is None or proof.state not in lifecycle.FINISHED_STEP:
        return Failed(reasons.of("not_validated", taint=readiness_taint.KEY))
    return node_marks.take_back(context, audit.Call.UNCORDON, first_work=True)


def _choose(context: Context, args: core.Args) -> probation.Choice:
    past = probations.returns(now=context.now) if args.probation == probation.AUTO else ()
    return probation.of_rule(args.probation, fault_class=probations.fault_class_of(context.rescue), past=past)


def _return(context: Context, choice: probation.Choice, *, foreign: bool) -> Done | Failed:
    """Returns the node on probation. The row comes first, so that a worker finds whatever the patch has left behind."""
    row, found = _planned(context, choice), probation_marks.Found()
    removed = node_marks.take_back(
        context,
        audit.Call.UNCORDON,
        foreign=foreign,
        also=probation_marks.put_on(row, found),
        wanted=audit.ProbationChange(probation=row.pk, because=choice.because, until=row.until),
    )
    with transaction.atomic(), ledger.last():
        Node.objects.select_for_update(no_key=True).get(pk=row.node_id)
        context.renew()
        context.note_answers()
        probation_marks.note_began(row, found.mark, actor=f"rescue {context.rescue.pk}", now=context.now)
    until = reasons.of("on_probation_until", until=reasons.moment(found.mark.until), why=choice.because)
    return replace(removed, reason=reasons.both(removed.reason, until))


def _planned(context: Context, choice: probation.Choice) -> Probation:
    """The row of the probation, which lasts from now on."""
    now, rescue = context.now, context.rescue
    times = {"until": now + choice.length, "due_at": now + PLANNED_LOOK}
    with transaction.atomic():
        context.renew()
        row, made = Probation.objects.get_or_create(
            rescue=rescue,
            defaults={
                "node": context.node,
                "node_uid": rescue.node_uid,
                "seconds": int(choice.length.total_seconds()),
                "because": choice.because.to_json(),
                "planned_at": now,
                **times,
            },
        )
        if not made and row.began_at is None:
            Probation.objects.filter(pk=row.pk).update(**times)
            row.refresh_from_db()
    row.node, row.rescue = context.node, rescue
    return row
