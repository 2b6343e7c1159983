"""A cordon that ends outside of the portal: by a person's ``kubectl uncordon``, or by the node's own kubelet.

The portal does not fight it, and it gives back no more than that. A kubelet may uncordon its node and remove the
portal's mark, but may not remove taints, so the portal must not do that for it.
"""

from dataclasses import replace

from kcover import audit, reasons
from kcover.actions import repair, webhook
from kcover.nodes import marks as core_marks
from kcover_portal.kube import port
from kcover_portal.rescue.models import Step
from kcover_portal.rescue.queries import device_isolations
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks


def keeps_more(context: Context) -> bool:
    """Returns whether more than a cordon is the portal's: taints, labels or devices, or the node is with somebody."""
    marks = _marks(context, context.kube.get_node(context.node.name))
    rules = {rule for rule, _ in marks.devices}
    if device_isolations.keeps_others(context.rescue):
        rules -= device_isolations.of_others(context.rescue, rules).keys()
    return bool(marks.taints or marks.given or rules) or _is_with_others(context.step)


def yield_only(context: Context, call: audit.Call) -> reasons.Reason:
    """Notes in the mark that the node is not cordoned any more. Everything else stays. Returns the reason.

    Requested reboots are withdrawn, because the node may take work.
    """
    node_marks.withdraw_jobs(context)
    planned: list[core_marks.Marks] = []

    def wanted(node: port.Node) -> port.NodeChange:
        context.check_machine(node)
        context.renew_if_needed()
        marks = _marks(context, node)
        cordoned = node.unschedulable
        rest = replace(marks, cordon=marks.cordon and cordoned, foreign_cordon=marks.foreign_cordon and cordoned)
        planned[:] = [rest]
        return port.NodeChange(annotations={core_marks.ANNOTATION: node_marks.text_of(rest, node)})

    context.write(call, lambda: context.kube.apply_node(context.node.name, wanted))
    context.keep_marks(planned[0])
    return reasons.of("uncordoned_outside", node=context.node.name)


def _marks(context: Context, node: port.Node) -> core_marks.Marks:
    """The marks on the node; those of the row, where somebody has removed them."""
    shown = core_marks.parse(node.annotations.get(core_marks.ANNOTATION, ""))
    return node_marks.adopt(context, node) if core_marks.read(shown) is not None else context.marks


def _is_with_others(step: Step) -> bool:
    """Returns whether the step waits for a repair, or for another system that has the node."""
    if step.spec.gives_node_away:
        return step.progress_as(webhook.Progress).given_at is not None
    return step.name == repair.SPEC.name and bool(step.progress_as(repair.Progress).repair)
