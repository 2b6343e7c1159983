"""replace: delete the object that stands for the machine, once, and wait until the node has left the cluster.

The object is read and compared with the live node right before the request: node name, providerID and system UUID
(``machines.services.replacements``). Its uid is stored before the request and is a precondition of the deletion, so no
other object can be deleted, whatever takes its name. A request with an unknown result is not repeated: the object shows
whether it is being deleted. If it is not, a person decides.

The rescue ends with the node (``Replaced``), whatever name the new machine gets. Steps after this one have nothing to
do: a new machine passes its burn-in.
"""

import contextlib
from datetime import timedelta

from kcover import audit, reasons
from kcover.actions import replace as core
from kcover.nodes.node_stage import Stage
from kcover_portal.fleet import queries as fleet
from kcover_portal.kube import port
from kcover_portal.machines import services as machines
from kcover_portal.rescue.step import errors, evidence, ladder, plan_steps, recheck_guards
from kcover_portal.rescue.step.context import Context, HeldBack
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Hold, Outcome, Poll, Replaced, Retry

POLL_SECONDS = 5.0
UNCLEAR_WITHIN = timedelta(seconds=60)  # a request whose answer was lost has had its effect by then


def run(context: Context) -> Outcome:
    """Requests the replacement once, then waits for the end of the node."""
    try:
        if _progress(context).asked_at is not None:
            return _await_end(context)
        return _ask(context)
    except machines.Unusable as error:
        return Hold(error.reason) if error.lasting else Retry(error.reason)


def _progress(context: Context) -> core.Progress:
    return context.step.progress_as(core.Progress)


def _ask(context: Context) -> Outcome:
    """Requests the replacement. A request that was refused before may have been carried out all the same."""
    try:
        return _replace(context)
    except port.NotFound:
        progress = _progress(context)
        if progress.uid and _is_going(context, progress):
            context.remember(asked_at=context.now)
            return _await_end(context)
        raise


def _is_going(context: Context, progress: core.Progress) -> bool:
    left = machines.replacer_of(context.node).object_named(progress.namespace, progress.machine, uid=progress.uid)
    return left is None or left.deleting


def _replace(context: Context) -> Outcome:
    node = node_marks.expect_isolated(context)
    spared = ladder.not_needed(context, node)
    if spared is not None:
        return spared
    if plan_steps.undrained(context.steps):
        return Hold(reasons.of("not_drained_not_replaced"))
    replacer = machines.replacer_of(context.node)
    replacer.object_of(node)
    awaited = evidence.wait(context)
    if awaited is not None:
        return awaited
    context.check_guards(destructive=True)
    node_marks.restate(context, Stage.REPAIR)
    node = node_marks.expect_isolated(context)
    found = replacer.object_of(node)  # once more: time may have passed since the first look
    _check_other_cluster(context, replacer)
    chosen = {
        "driver": replacer.driver.name,
        "kind": replacer.kind.kind,
        "namespace": found.namespace,
        "machine": found.name,
        "uid": found.uid,
        "provider_id": found.provider_id,
    }
    context.remember(**chosen, asked_at=context.now)
    if not found.deleting:  # somebody else may have requested it
        refused = _delete(context, replacer, found, node)
        if refused is not None:
            return refused
    return _await_end(context)


def _check_other_cluster(context: Context, replacer: machines.Replacer) -> None:
    """The mode of a separate management cluster holds for what is deleted there. Raises HeldBack."""
    if replacer.of.pk == context.cluster.pk:
        return
    mode, why = fleet.mode_now(replacer.of)
    if mode in fleet.MODES_WITHOUT_WRITES:
        raise HeldBack(recheck_guards.silent(mode, why))
    if recheck_guards.needs_approval(context.rescue, mode=mode):
        raise recheck_guards.ApprovalNeeded(reasons.of("approve_step", step=context.step.name))


def _delete(
    context: Context, replacer: machines.Replacer, found: port.CustomObject, node: port.Node
) -> Hold | Retry | None:
    """The request. It is forgotten only if it was certainly not carried out. Raises HeldBack."""
    wanted = audit.Replacement(
        driver=replacer.driver.name,
        kind=replacer.kind.kind,
        machine="/".join(part for part in (found.namespace, found.name) if part),
        uid=found.uid,
        provider_id=found.provider_id,
        system_uuid=node.system_uuid,
    )
    try:
        context.write(audit.Call.REPLACE, lambda: replacer.delete(found), destructive=True, wanted=wanted)
    except HeldBack:  # before the call
        context.remember(asked_at=None)
        raise
    except port.Unavailable as error:
        if not error.ambiguous:
            context.remember(asked_at=None)
            return Retry(errors.reason_of(error), after=error.retry_after)
    except port.KubeError as error:
        if replacer.is_going(found):  # it was carried out, or somebody else had asked for it
            return None
        context.remember(asked_at=None)
        return Hold(reasons.of("replacement_refused", why=errors.reason_of(error)))
    return None


def _await_end(context: Context) -> Outcome:
    progress = _progress(context)
    assert progress.asked_at is not None  # of the caller's branch
    named = {"kind": progress.kind, "object": progress.machine}
    node: port.Node | None = None
    with contextlib.suppress(port.NotFound):
        node = context.kube.get_node(context.node.name)
    if node is not None and node.uid != context.rescue.node_uid:
        return _ended(context, named)
    replacer = machines.replacer_of(context.node)
    left = replacer.object_named(progress.namespace, progress.machine, uid=progress.uid)
    stays = left is not None and not left.deleting
    if node is None and not stays:  # a node that somebody deletes while its machine stays proves nothing
        return _ended(context, named)
    waited = context.now - progress.asked_at
    if waited > replacer.within:
        limit = reasons.span(replacer.within)
        return Hold(reasons.of("replacement_timeout", node=context.node.name, limit=limit, **named))
    if waited > UNCLEAR_WITHIN and stays:
        return Hold(reasons.of("replacement_unclear", **named))
    return Poll(POLL_SECONDS, reasons.of("replacement_requested", node=context.node.name, **named))


def _ended(context: Context, named: dict[str, str]) -> Replaced:
    context.keep_marks(None)  # they are gone with the node
    return Replaced(reasons.of("machine_replaced", node=context.node.name, **named))
