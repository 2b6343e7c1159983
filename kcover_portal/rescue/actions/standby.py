"""standby: a warm standby takes over the node's role, so that its work has somewhere to go (KCE's enableWarmStandby).

The reservation is first a row (the database allows one per standby), then a label on the standby. Then one patch hands
over the role, and the standby takes work. A standby that turns out to be unfit is given back and another is chosen, at
most three times. If none is free, the plan continues without one and records that (invariant 40). A node that already
has a standby does not get a second one: a node that fails repeatedly would use up all of them.
"""

import random
from functools import partial

from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover.decisions import standby as core
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.models import Assignment
from kcover_portal.rescue.queries import standbys
from kcover_portal.rescue.step import errors, recheck_guards
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks, standby_marks
from kcover_portal.rescue.step.marks.standby_marks import StandbyUnfit
from kcover_portal.rescue.step.outcomes import Done, Outcome

MAX_STANDBYS_TRIED = 3  # standbys that turned out unfit; then the plan continues without one
MAX_LOST_RACES = 20  # each lost race means that another rescue got a standby

CHANCE = random.Random()  # nosec B311


def run(context: Context) -> Outcome:
    """Chooses, reserves and puts into service one standby; continues where an earlier attempt stopped."""
    origin = node_marks.expect_isolated(context)
    while True:
        assignment = standbys.of_rescue(context.rescue)
        if assignment is None:
            before = standbys.assignments().filter(origin=context.node, state=Assignment.State.ACTIVE).first()
            if before is not None:
                return Done(reasons.of("standing_in_since", standby=before.spare.name, rescue=str(before.rescue_id)))
            unfit = Assignment.objects.filter(rescue=context.rescue, state=Assignment.State.RELEASED).count()
            if unfit >= MAX_STANDBYS_TRIED:
                return _without(context, reasons.of("standbys_unfit", count=unfit))
            recheck_guards.storm(context.rescue, now=context.now)
            chosen = _reserve(context, origin)
            if isinstance(chosen, core.Shortage):
                return _without(context, reasons.both(*chosen.because))
            assignment = chosen
        if assignment.state == Assignment.State.ACTIVE:
            chosen_as = reasons.from_json(assignment.because)
            return Done(reasons.of("standing_in", standby=assignment.spare.name, why=chosen_as))
        try:
            _put_into_service(context, assignment, origin)
        except (StandbyUnfit, port.NotFound, port.RefusedByServer) as error:
            _give_back(context, assignment, because=errors.reason_of(error))


def _without(context: Context, because: reasons.Reason) -> Outcome:
    context.remember(shortage=True)
    return Done(because)


def _reserve(context: Context, origin: port.Node) -> Assignment | core.Shortage:
    """Reserves a free standby for this rescue; another rescue may be doing the same."""
    nodes, rules = Node.objects.filter(cluster=context.cluster), policies.standby_rules(context.cluster.pk)
    choice: core.ChosenStandby | core.Shortage = core.Shortage(because=())
    for _ in range(MAX_LOST_RACES):
        facts = [spare.fact for spare in standbys.spares(nodes, now=context.now)]
        choice = core.choose(rules, facts, origin=context.node.name, labels=origin.labels, chance=CHANCE)
        if isinstance(choice, core.Shortage):
            return choice
        assignment = _confirm(context, choice)
        if assignment is not None:
            return assignment
    return core.Shortage(because=choice.because)


def _confirm(context: Context, choice: core.ChosenStandby) -> Assignment | None:
    """The reservation, checked again under the lock of the standby's row; None if another rescue was faster."""
    row = Node.objects.filter(cluster=context.cluster, name=choice.name)
    try:
        with transaction.atomic():
            spare = row.select_for_update(no_key=True).get()  # lock this row before the rescue's row, as everywhere
            context.renew()
            if any(candidate.busy for candidate in standbys.spares(row, now=context.now)):
                return None
            return Assignment.objects.create(
                spare=spare,
                origin=context.node,
                rescue=context.rescue,
                because=reasons.both(*choice.because).to_json(),
                reserved_at=context.now,
            )
    except IntegrityError:
        return None


def _put_into_service(context: Context, assignment: Assignment, origin: port.Node) -> None:
    """Sets the label of the reservation, checks it, hands the role over. Raises StandbyUnfit and the port's errors."""
    spare, change = assignment.spare, audit.StandbyChange(assignment=assignment.pk, origin=context.node.name)
    if not assignment.marks:
        reserve = partial(
            context.kube.apply_node, spare.name, standby_marks.promised(assignment), expect=context.renew_if_needed
        )
        _, after = context.write(audit.Call.RESERVE, reserve, node=spare.name, wanted=change)
        Assignment.objects.filter(pk=assignment.pk).update(marks=standby_marks.mark_json(after, assignment))
    for found in standbys.spares(Node.objects.filter(pk=spare.pk), now=context.now):
        if not (found.fact.ready and found.fact.healthy):
            raise StandbyUnfit(found.busy or reasons.of("standby_unhealthy", standby=spare.name))
    wanted = standby_marks.in_service(
        assignment, origin, rules=policies.standby_rules(context.cluster.pk), ours=context.marks
    )
    activate = partial(context.kube.apply_node, spare.name, wanted, expect=context.renew_if_needed)
    _, after = context.write(audit.Call.ACTIVATE, activate, node=spare.name, wanted=change)
    kept = Assignment.objects.filter(pk=assignment.pk, state=Assignment.State.RESERVED).update(
        state=Assignment.State.ACTIVE,
        marks=standby_marks.mark_json(after, assignment),
        marks_begun={},
        activated_at=context.now,
    )
    if not kept:
        raise StandbyUnfit(reasons.of("standby_released_meanwhile", standby=spare.name))


def _give_back(context: Context, assignment: Assignment, *, because: reasons.Reason) -> None:
    spare = assignment.spare
    back = partial(
        context.kube.apply_node, spare.name, standby_marks.given_back(assignment), expect=context.renew_if_needed
    )
    try:
        change = audit.StandbyChange(assignment=assignment.pk, because=because)
        context.write(audit.Call.GIVE_BACK, back, node=spare.name, wanted=change)
    except port.NotFound:
        because = reasons.both(because, reasons.of("standby_gone"))
    standby_marks.note_given_back(assignment, because=because, now=context.now)
