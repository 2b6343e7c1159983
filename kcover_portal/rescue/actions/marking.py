"""Changing a node and taking it back: each one patch, with the portal's mark in the same patch."""

from collections.abc import Callable
from functools import partial
from typing import Any

from kcover import decision, standby
from kcover import marks as kernel_marks
from kcover_portal.kube import port
from kcover_portal.rescue.actions.context import Context, HeldBack, Stopped, TakenBack
from kcover_portal.rescue.actions.drivers import job
from kcover_portal.rescue.models import Step

Marks = kernel_marks.Marks


class ForeignTaint(Stopped):
    """Somebody else's taint stands where the portal's would: a node has one value for a key and an effect."""


def adopt(context: Context, node: port.Node) -> Marks:
    """The marks to go on from: those on the node, if the portal wrote them, else a clean sheet.

    A rescue that follows another on an isolated node takes its marks over, so that the last one takes all back.
    """
    on_node = kernel_marks.read(kernel_marks.parse(node.annotations.get(kernel_marks.ANNOTATION, "")))
    if on_node is None:
        return Marks(rescue=context.rescue.pk)
    return Marks(
        rescue=context.rescue.pk,
        cordon=on_node.cordon,
        foreign_cordon=on_node.foreign_cordon,
        taints=on_node.taints,
        labels=on_node.labels,
        given=on_node.given,
    )


def change(
    context: Context,
    verb: str,
    *,
    state: str | None,
    cordon: bool = False,
    taint: port.Taint | None = None,
    label: tuple[str, str] | None = None,
    destructive: bool = False,
) -> Marks:
    """Cordons, taints or labels the node, says in its state label what it is now (None: leaves that alone) and writes
    the marks, in one patch. ``destructive``: it takes running work away. Raises ForeignTaint."""
    kube, name = context.kube, context.node.name
    planned: list[Marks] = []

    def wanted(node: port.Node) -> port.NodeChange:
        context.check_machine(node)
        context.stay()
        marks = adopt(context, node)
        if cordon:
            marks = marks.with_cordon(was_unschedulable=node.unschedulable)
        if taint is not None:
            marks = _with_taint(marks, taint, node)
        labels: dict[str, str | None] = {}
        if label is not None:
            key, labels[key] = label
            marks = marks.with_label(key, before=node.labels.get(key), value=label[1])
        if state is not None:
            labels[kernel_marks.STATE_LABEL] = state
            marks = marks.with_label(kernel_marks.STATE_LABEL, before=_state_before(node))
        planned[:] = [marks]
        return port.NodeChange(
            cordon=True if cordon else None,
            labels=labels,
            annotations={kernel_marks.ANNOTATION: marks.render()},
            add_taints=(taint,) if taint else (),
        )

    data: dict[str, Any] = {"state": state, "cordon": cordon}
    if label is not None:
        data["label"] = "=".join(label)
    if taint is not None:
        data["taint"] = f"{taint.key}={taint.value}:{taint.effect}"
    context.write(verb, lambda: kube.apply_node(name, wanted), destructive=destructive, data=data)
    context.keep_marks(planned[0])
    return planned[0]


def _with_taint(marks: Marks, taint: port.Taint, node: port.Node) -> Marks:
    """The marks after the taint, which takes the place only of one that is the portal's own (invariant 19)."""
    for found in node.taints:
        in_its_place = (found.key, found.effect) == (taint.key, taint.effect) and found.value != taint.value
        if in_its_place and (found.key, found.value, found.effect) not in marks.taints:
            raise ForeignTaint(
                f"somebody else's taint {found.key}={found.value}:{found.effect} is on {node.name}, and "
                f"{taint.value or 'no value'} would take its place"
            )
    return marks.with_taint((taint.key, taint.value, taint.effect), was_there=taint in node.taints)


def _state_before(node: port.Node) -> str | None:
    """The state label to give back; a promise as standby is the portal's own word, and ends by itself."""
    state = node.labels.get(kernel_marks.STATE_LABEL)
    return None if state == standby.RESERVED else state


def restate(context: Context, state: str) -> None:
    """Changes the state label only, on a node that already carries the marks. Raises TakenBack on drift."""
    node = expect_isolated(context)
    if node.labels.get(kernel_marks.STATE_LABEL) == state or kernel_marks.STATE_LABEL not in context.marks.labels:
        return
    wanted = port.NodeChange(labels={kernel_marks.STATE_LABEL: state})
    check = still_marked(context)

    def expect(node: port.Node) -> None:
        context.check_machine(node)
        context.stay()
        if check is not None:
            check(node)

    context.write(
        "label",
        lambda: context.kube.apply_node(context.node.name, wanted, expect=expect),
        data={"state": state},
    )


def expect_isolated(context: Context) -> port.Node:
    """Reads the live node; raises TakenBack if the rescue's cordon or its marks are gone (invariant 20)."""
    node = context.kube.get_node(context.node.name)
    context.check_machine(node)
    check = still_marked(context)
    if check is not None:
        check(node)
    if node.labels.get(decision.EXCLUDE_LABEL) == "true":
        raise HeldBack(f"the node carries {decision.EXCLUDE_LABEL}=true")
    return node


def still_marked(context: Context) -> Callable[[port.Node], None] | None:
    """A check for the node about to be written to; None when the rescue has put no marks on it yet."""
    marks = kernel_marks.read(context.rescue.marks)
    if marks is None:
        return None

    def check(node: port.Node) -> None:
        if (marks.cordon or marks.foreign_cordon) and not node.unschedulable:
            raise TakenBack(f"somebody uncordoned {node.name} by hand")
        if not kernel_marks.parse(node.annotations.get(kernel_marks.ANNOTATION, "")):
            raise TakenBack(f"somebody removed the portal's mark from {node.name}")

    return check


def take_back(context: Context, verb: str, *, foreign: bool = False, also: port.Wanted | None = None) -> str:
    """Removes exactly what the portal added, and its mark, in one patch; returns what that was, in words.

    ``foreign``: an operator asked for a schedulable node whoever cordoned it. ``also``: what else goes into the patch,
    and has the last word on cordon and labels.
    """
    kube, name = context.kube, context.node.name
    _withdraw_jobs(context)
    said: list[str] = []

    def wanted(node: port.Node) -> port.NodeChange:
        context.check_machine(node)
        context.stay()
        marks = adopt(context, node)
        uncordon = marks.cordon or foreign
        taints = tuple(port.Taint(*taint) for taint in marks.taints)
        more = also(node) if also else port.NodeChange()
        said[:] = [_words(marks, uncordon=uncordon, unschedulable=node.unschedulable)]
        own = False if uncordon else None
        return port.NodeChange(
            cordon=own if more.cordon is None else more.cordon,
            labels={**marks.labels_back(node.labels), **more.labels},
            annotations={kernel_marks.ANNOTATION: None, **more.annotations},
            add_taints=more.add_taints,
            remove_taints=(*taints, *more.remove_taints),
        )

    context.write(verb, lambda: kube.apply_node(name, wanted))
    context.keep_marks(None)
    return said[0]


def _withdraw_jobs(context: Context) -> None:
    """Deletes reboot jobs that were asked for and have not rebooted the node: nothing may reboot it once it works."""
    asked = Step.objects.filter(rescue__node=context.node, name="reboot").exclude(state__in=("done", "pending"))
    for step in asked:
        if (step.progress.get("withdrawal") or {}).get("done"):
            continue
        for place in job.asked_for(step.progress):
            namespace, _, name = place.partition("/")
            context.write("withdraw", partial(context.kube.delete_job, namespace, name), subject=f"job {place}")


def _words(marks: Marks, *, uncordon: bool, unschedulable: bool) -> str:
    words = []
    if uncordon and unschedulable:
        words.append("cordon")
    words += [f"taint {key}={value}:{effect}" for key, value, effect in marks.taints]
    words += [f"label {key}" for key in sorted(marks.given)]
    kept = "; still cordoned by somebody else" if marks.foreign_cordon and not uncordon else ""
    return f"took back {', '.join(words) or 'its marks'}{kept}"
