"""standby: a spare takes over what the node did, so that its work has somewhere to go (KCE's enableWarmStandby).

The promise is a row first (one a spare, by the database), then a label on the spare; then the role is handed over and
the spare takes work, in one patch. A spare that is not fit any more is given back and another chosen, three times at
most; where none is free the plan goes on without one and says so (invariant 40). A node whose role a spare has already
gets no second one: a node that fails again and again would use up all of them.
"""

import random
from functools import partial

from django.db import IntegrityError, transaction

from kcover import standby as kernel
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.actions import handing_over, marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.handing_over import Unfit
from kcover_portal.rescue.actions.outcome import Done, Outcome
from kcover_portal.rescue.models import Assignment
from kcover_portal.rescue.queries import standbys

TRIES = 3  # spares that turned out unfit; then the plan goes on without
RACES = 20  # each one lost means that another rescue got a spare

CHANCE = random.Random()


def run(context: Context) -> Outcome:
    """Finds, promises and puts into service one standby; goes on where it was left."""
    origin = marking.expect_isolated(context)
    while True:
        assignment = standbys.of_rescue(context.rescue)
        if assignment is None:
            before = standbys.assignments().filter(origin=context.node, state=Assignment.State.ACTIVE).first()
            if before is not None:
                return Done(f"{before.spare.name} has stood in for it since rescue {before.rescue_id}")
            unfit = Assignment.objects.filter(rescue=context.rescue, state=Assignment.State.RELEASED).count()
            if unfit >= TRIES:
                return _without(context, f"{unfit} standbys were taken and turned out unfit: it goes on without one")
            chosen = _promise(context, origin)
            if isinstance(chosen, kernel.Shortage):
                return _without(context, "; ".join(str(why) for why in chosen.because))
            assignment = chosen
        if assignment.state == Assignment.State.ACTIVE:
            return Done(f"{assignment.spare.name} stands in: {assignment.because}")
        try:
            _put_into_service(context, assignment, origin)
        except (Unfit, port.NotFound, port.Refused) as error:
            _give_back(context, assignment, because=str(error))


def _without(context: Context, because: str) -> Outcome:
    context.remember(shortage=True)
    return Done(because)


def _promise(context: Context, origin: port.Node) -> Assignment | kernel.Shortage:
    """Takes a free standby for this rescue; another rescue may be doing the same."""
    nodes, rules = Node.objects.filter(cluster=context.cluster), policies.standby_rules()
    choice: kernel.Chosen | kernel.Shortage = kernel.Shortage(because=())
    for _ in range(RACES):
        facts = [spare.fact for spare in standbys.spares(nodes, now=context.now)]
        choice = kernel.choose(rules, facts, origin=context.node.name, labels=origin.labels, chance=CHANCE)
        if isinstance(choice, kernel.Shortage):
            return choice
        assignment = _take(context, choice)
        if assignment is not None:
            return assignment
    return kernel.Shortage(because=choice.because)


def _take(context: Context, choice: kernel.Chosen) -> Assignment | None:
    """The promise, asked for once more under the lock of the standby's row; None if somebody else was faster."""
    row = Node.objects.filter(cluster=context.cluster, name=choice.name)
    try:
        with transaction.atomic():
            spare = row.select_for_update(no_key=True).get()  # before the rescue's row, as everywhere
            context.renew()
            if any(one.busy for one in standbys.spares(row, now=context.now)):
                return None
            return Assignment.objects.create(
                spare=spare,
                origin=context.node,
                rescue=context.rescue,
                because="; ".join(str(why) for why in choice.because)[:500],
                reserved_at=context.now,
            )
    except IntegrityError:
        return None


def _put_into_service(context: Context, assignment: Assignment, origin: port.Node) -> None:
    """The label of the promise, a look at the spare's health, and the role. Raises Unfit, NotFound, Refused."""
    spare, data = assignment.spare, {"assignment": assignment.pk, "for": context.node.name}
    if not assignment.marks:
        reserve = partial(context.kube.apply_node, spare.name, handing_over.promised(assignment), expect=context.stay)
        _, after = context.write("reserve", reserve, node=spare.name, data=data)
        Assignment.objects.filter(pk=assignment.pk).update(marks=handing_over.mark_json(after, assignment))
    for found in standbys.spares(Node.objects.filter(pk=spare.pk), now=context.now):
        if not (found.fact.ready and found.fact.healthy):
            raise Unfit(str(found.busy))
    wanted = handing_over.in_service(assignment, origin, rules=policies.standby_rules(), ours=context.marks)
    activate = partial(context.kube.apply_node, spare.name, wanted, expect=context.stay)
    _, after = context.write("activate", activate, node=spare.name, data=data)
    kept = Assignment.objects.filter(pk=assignment.pk, state=Assignment.State.RESERVED).update(
        state=Assignment.State.ACTIVE, marks=handing_over.mark_json(after, assignment), activated_at=context.now
    )
    if not kept:
        raise Unfit(f"{spare.name} was released meanwhile")


def _give_back(context: Context, assignment: Assignment, *, because: str) -> None:
    spare = assignment.spare
    back = partial(context.kube.apply_node, spare.name, handing_over.given_back(assignment), expect=context.stay)
    try:
        context.write("give_back", back, node=spare.name, data={"assignment": assignment.pk, "because": because})
    except port.NotFound:
        because = f"{because}; the cluster no longer has it"
    handing_over.note_given_back(assignment, because=because, now=context.now)
