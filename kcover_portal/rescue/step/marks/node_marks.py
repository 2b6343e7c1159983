"""Change a node, and take the change back: one patch each, with the portal's mark in the same patch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from django.db import transaction

from kcover import actions, audit, reasons
from kcover.decisions import decide
from kcover.nodes import marks as core_marks, probation_mark, readiness_taint
from kcover.nodes.node_stage import Stage
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.rescue.models import Step
from kcover_portal.rescue.queries import device_isolations, proved_marks
from kcover_portal.rescue.step import recheck_guards
from kcover_portal.rescue.step.context import Context, HeldBack
from kcover_portal.rescue.step.devices import device_rules
from kcover_portal.rescue.step.drivers import job
from kcover_portal.rescue.step.errors import TakenBack, WriteForbidden
from kcover_portal.rescue.step.marks import probation_marks
from kcover_portal.rescue.step.outcomes import Done, Failed

Marks = core_marks.Marks
RETURNS = (audit.Call.UNCORDON, audit.Call.YIELD)  # the node takes work again, after a repair or by somebody's hand


class ForeignTaint(WriteForbidden):
    """Someone else's taint is in the way: a node has one value for each key and effect."""


def adopt(context: Context, node: port.Node) -> Marks:
    """The marks to continue from: those on the node, if the portal wrote them, else new ones.

    A rescue that follows another on an isolated node adopts its marks, so that the last one removes everything. Of the
    marks on the node, only what the rows state counts: its kubelet may write there. It may remove them too: then what
    the rows state and the node still shows counts.
    """
    on_node = _shown(node)
    if on_node is None:
        # A node without either is a node in service: the first write of a rescue costs no look at the rows.
        looks_isolated = node.taints or core_marks.STATE_LABEL in node.labels
        left = proved_marks.still_on(context.node, node) if looks_isolated else None
        return replace(left or Marks(rescue=0), rescue=context.rescue.pk)
    own = core_marks.read(context.rescue.marks)
    if own is None or proved_marks.by([own], on_node) != on_node:
        on_node = proved_marks.by(proved_marks.known(context.node, uid=node.uid), on_node)
    return replace(on_node, rescue=context.rescue.pk)


def _shown(node: port.Node) -> Marks | None:
    return core_marks.read(core_marks.parse(node.annotations.get(core_marks.ANNOTATION, "")))


def change(
    context: Context,
    call: audit.Call,
    *,
    state: Stage | None,
    cordon: bool = False,
    taint: port.Taint | None = None,
    label: tuple[str, str] | None = None,
    without_device: str = "",
    destructive: bool = False,
) -> Marks:
    """Cordons, taints or labels the node, sets its state label and writes the marks, in one patch.

    The marks leave out the readiness taint (``readiness_taint``). ``state`` None leaves the state label alone.
    ``without_device``: a DeviceTaintRule that was not created. ``destructive``: it takes running work away. Raises
    ForeignTaint and HeldBack.
    """
    kube, name = context.kube, context.node.name
    planned: list[Marks] = []
    if context.node.labels.get(decide.EXCLUDE_LABEL) == "true":  # known: no call is begun and given up, again and again
        raise HeldBack(recheck_guards.excluded(name))

    def wanted(node: port.Node) -> port.NodeChange:
        context.check_machine(node)
        check_not_excluded(context, node)
        marks = adopt(context, node).without_devices({without_device})
        if cordon:
            marks = marks.with_cordon(was_unschedulable=node.unschedulable)
        if taint is not None and taint.key != readiness_taint.KEY:
            marks = _with_taint(marks, taint, node)
        labels: dict[str, str | None] = {}
        if label is not None:
            key, labels[key] = label
            marks = marks.with_label(key, before=node.labels.get(key), value=label[1])
        if state is not None:
            labels[core_marks.STATE_LABEL] = state.value
            marks = marks.with_label(core_marks.STATE_LABEL, before=_state_before(node))
        context.begin_marks(marks)
        planned[:] = [marks]
        return port.NodeChange(
            cordon=True if cordon else None,
            labels=labels,
            annotations={core_marks.ANNOTATION: text_of(marks, node)},
            add_taints=(taint,) if taint else (),
        )

    patch = audit.NodePatch(
        state=state,
        cordon=cordon,
        label="=".join(label) if label is not None else "",
        taint=f"{taint.key}={taint.value}:{taint.effect}" if taint is not None else "",
    )
    context.write(call, lambda: kube.apply_node(name, wanted), destructive=destructive, wanted=patch)
    context.keep_marks(planned[0])
    return planned[0]


def _with_taint(marks: Marks, taint: port.Taint, node: port.Node) -> Marks:
    """The marks after the taint, which replaces only a taint of the portal's own (invariant 19)."""
    for found in node.taints:
        in_its_place = (found.key, found.effect) == (taint.key, taint.effect) and found.value != taint.value
        if in_its_place and (found.key, found.value, found.effect) not in marks.taints:
            foreign, wanted = (f"{item.key}={item.value}:{item.effect}" for item in (found, taint))
            raise ForeignTaint(reasons.of("foreign_taint", taint=foreign, node=node.name, wanted=wanted))
    return marks.with_taint((taint.key, taint.value, taint.effect), was_there=taint in node.taints)


def remove_taint(context: Context, taint: port.Taint) -> None:
    """Removes one taint of the portal's own, and its entry in the marks, in one patch; everything else stays."""
    kube, name = context.kube, context.node.name
    removed = (taint.key, taint.value, taint.effect)
    planned: list[Marks] = []

    def wanted(node: port.Node) -> port.NodeChange:
        context.check_machine(node)
        context.renew_if_needed()
        marks = adopt(context, node)
        planned[:] = [marks.without_taint(removed)]
        return port.NodeChange(
            annotations={core_marks.ANNOTATION: text_of(planned[0], node, proved=marks)},
            remove_taints=(taint,) if removed in marks.taints else (),
        )

    patch = audit.NodePatch(state=None, taint=f"{taint.key}={taint.value}:{taint.effect}")
    expect = still_marked(context)
    context.write(audit.Call.UNTAINT, lambda: kube.apply_node(name, wanted, expect=expect), wanted=patch)
    context.keep_marks(planned[0])


def _state_before(node: port.Node) -> str | None:
    """The state label to restore; ``reserved`` and ``probation`` are the portal's own and end by themselves."""
    state = node.labels.get(core_marks.STATE_LABEL)
    return None if state in probation_marks.OWN_STATES else state


def restate(context: Context, state: Stage) -> port.Node:
    """Changes the state label only, on a node that already carries the marks. Raises TakenBack on drift.

    Returns the live node, read before the change.
    """
    node = expect_isolated(context)
    if node.labels.get(core_marks.STATE_LABEL) == state or core_marks.STATE_LABEL not in context.marks.labels:
        return node
    wanted = port.NodeChange(labels={core_marks.STATE_LABEL: state.value})
    check = still_marked(context)

    def expect(node: port.Node) -> None:
        context.check_machine(node)
        context.renew_if_needed()
        if check is not None:
            check(node)

    context.write(
        audit.Call.LABEL,
        lambda: context.kube.apply_node(context.node.name, wanted, expect=expect),
        wanted=audit.NodePatch(state=state),
    )
    return node


def expect_isolated(context: Context) -> port.Node:
    """Reads the live node; raises TakenBack if the rescue's cordon or its marks are gone (invariant 20)."""
    node = context.kube.get_node(context.node.name)
    context.check_machine(node)
    check = still_marked(context)
    if check is not None:
        check(node)
    check_not_excluded(context, node)
    return node


def check_not_excluded(context: Context, node: port.Node) -> None:
    """Raises HeldBack if the live node carries the label that keeps the portal off it: the watch may be behind.

    The portal's own row has the label from then on, so that decisions and guards see it, too.
    """
    if node.labels.get(decide.EXCLUDE_LABEL) != "true":
        return
    if context.node.labels.get(decide.EXCLUDE_LABEL) != "true":
        note_excluded(context.node)
    raise HeldBack(recheck_guards.excluded(node.name))


def note_excluded(row: Node) -> None:
    """Gives the portal's own row the label at once: a fault that is decided before the watch tells is held, too."""
    with transaction.atomic():
        now = Node.objects.select_for_update(no_key=True).get(pk=row.pk)
        row.labels = {**now.labels, decide.EXCLUDE_LABEL: "true"}
        Node.objects.filter(pk=row.pk).update(labels=row.labels)


def still_marked(context: Context) -> Callable[[port.Node], None] | None:
    """A check of the node right before a write; None if the rescue has put no marks on it yet."""
    marks = core_marks.read(context.rescue.marks)
    if marks is None:
        return None

    def check(node: port.Node) -> None:
        if (marks.cordon or marks.foreign_cordon) and not node.unschedulable:
            raise TakenBack(reasons.of("uncordoned_by_hand", node=node.name))
        if not core_marks.parse(node.annotations.get(core_marks.ANNOTATION, "")):
            raise TakenBack(reasons.of("mark_removed_by_hand", node=node.name))

    return check


def take_back(
    context: Context,
    call: audit.Call,
    *,
    foreign: bool = False,
    first_work: bool = False,
    also: port.DesiredChange | None = None,
    wanted: audit.Wanted | None = None,
) -> Done | Failed:
    """Removes exactly what the portal added, and its mark, in one patch. The outcome says what was removed.

    What the mark names and no row states stays, the mark goes on naming it, and the step fails: a person decides. Rules
    that taint single devices are deleted first, each by a call of its own. A rescue that no person asked for returns
    the node, or yields it to who uncordoned it: rules of other rescues for other GPUs stay in the mark.
    ``foreign``: an operator wants the node schedulable, whoever cordoned it. ``first_work``: the node may take its
    first work, so the readiness taint goes, too. ``also``: another change for the same
    patch, which takes precedence for the cordon and the labels. ``wanted``: for the audit log.
    """
    kube, name = context.kube, context.node.name
    withdraw_jobs(context)
    by_rule = call in RETURNS and device_isolations.keeps_others(context.rescue)
    rules = device_rules.Withdrawal(context=context, only_own=by_rule)
    rules.withdraw(device_isolations.noted(context.rescue))
    remaining: list[Marks | None] = []
    removed: list[reasons.Reason] = []
    unproved: list[Marks] = []

    def reverted(node: port.Node) -> port.NodeChange:
        context.check_machine(node)
        context.renew_if_needed()
        marks = adopt(context, node)
        rules.check(node, marks)
        unproved[:] = _unproved(node, marks)
        rest = rules.remaining(marks) or (Marks(rescue=context.rescue.pk) if unproved else None)
        remaining[:] = [rest]
        uncordon = marks.cordon or foreign
        taints = tuple(port.Taint(*taint) for taint in marks.taints)
        more = also(node) if also else port.NodeChange()
        readiness = readiness_taint.among(node.taints) if first_work else ()
        gone = (*marks.taints, *((taint.key, taint.value, taint.effect) for taint in readiness))
        shown = replace(marks, taints=gone).without_devices({*rules.kept, *rules.foreign})
        removed[:] = [_removed(shown, uncordon=uncordon, unschedulable=node.unschedulable)]
        own = False if uncordon else None
        return port.NodeChange(
            cordon=own if more.cordon is None else more.cordon,
            labels={**_labels_back(marks, node, more), **more.labels},
            annotations={core_marks.ANNOTATION: _with(rest, unproved).render() if rest else None, **more.annotations},
            add_taints=more.add_taints,
            remove_taints=(*taints, *readiness, *more.remove_taints),
        )

    try:
        context.write(call, lambda: kube.apply_node(name, reverted), wanted=wanted)
    except device_rules.TaintLeft as left:  # the live node names more rules than the rows
        rules.withdraw(left.rules)
        context.write(call, lambda: kube.apply_node(name, reverted), wanted=wanted)
    context.keep_marks(remaining[0])
    if not unproved:
        return Done(reasons.both(removed[0], rules.left_alone))
    return Failed(reasons.both(removed[0], *_left_to_people(unproved[0], node=name), rules.left_alone))


def _labels_back(marks: Marks, node: port.Node, more: port.NodeChange) -> dict[str, str | None]:
    """The labels to set so that the node has those of before. If a probation goes on, the state label names it."""
    labels = marks.labels_to_restore(node.labels)
    goes_on = probation_marks.on(node) is not None and probation_mark.ANNOTATION not in more.annotations
    if core_marks.STATE_LABEL in labels and goes_on:
        labels[core_marks.STATE_LABEL] = probation_mark.STATE
    return labels


def withdraw_jobs(context: Context) -> None:
    """Deletes reboot jobs that have not rebooted the node, because nothing may reboot it once it takes work again."""
    leaving = actions.names(lambda spec: spec.leaves_jobs)
    requested = Step.objects.filter(rescue__node=context.node, name__in=leaving).select_related("rescue__node")
    for step in requested.exclude(state__in=("done", "pending")):
        for own in step.leftovers:
            withdraw = partial(job.withdraw, context.kube, own, step)
            context.write(audit.Call.WITHDRAW, withdraw, target=f"job {own}")


def text_of(marks: Marks, node: port.Node, *, proved: Marks | None = None) -> str:
    """The mark with these marks for the node. It goes on naming what no row states: it is the only evidence.

    ``proved``: the marks that count at present, if they differ. The row gets ``marks`` only, because it proves what it
    states.
    """
    return _with(marks, _unproved(node, proved or marks)).render()


def _unproved(node: port.Node, proved: Marks) -> list[Marks]:
    """What the mark on the node names and no row states; empty for nothing."""
    shown = _shown(node)
    if shown is None:
        return []
    present = {(taint.key, taint.value, taint.effect) for taint in node.taints}
    left = shown.unproved(proved, labels=node.labels, taints=present)
    return [left] if left.taints or left.labels else []


def _with(marks: Marks, unproved: Sequence[Marks]) -> Marks:
    for left in unproved:
        labels, given = {**left.labels, **marks.labels}, {**left.given, **marks.given}
        marks = replace(marks, taints=(*marks.taints, *left.taints), labels=labels, given=given)
    return marks


def _left_to_people(left: Marks, *, node: str) -> tuple[reasons.Reason, reasons.Reason]:
    changes = [reasons.of("change_taint", taint=f"{key}={value}:{effect}") for key, value, effect in left.taints]
    changes += [reasons.of("change_label", label=key) for key in sorted(left.labels)]
    return reasons.of("marks_unproved", changes=tuple(changes)), reasons.of("marks_unproved_kept", node=node)


def _removed(marks: Marks, *, uncordon: bool, unschedulable: bool) -> reasons.Reason:
    changes = [reasons.of("change_cordon")] if uncordon and unschedulable else []
    changes += [reasons.of("change_taint", taint=f"{key}={value}:{effect}") for key, value, effect in marks.taints]
    changes += [reasons.of("change_label", label=key) for key in sorted(marks.given)]
    changes += [reasons.of("change_device", device=device) for _, device in marks.devices]
    removed = reasons.of("marks_removed", changes=tuple(changes)) if changes else reasons.of("mark_removed")
    foreign = marks.foreign_cordon and not uncordon
    return reasons.both(removed, reasons.of("foreign_cordon_kept") if foreign else None)
