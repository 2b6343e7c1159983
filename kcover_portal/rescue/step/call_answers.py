"""The cluster's answer to a call, as the audit log stores it."""

from collections.abc import Collection

from kcover import audit, reasons
from kcover.decisions import guards
from kcover.nodes import marks as core_marks
from kcover_portal.kube import port


def of(result: object) -> audit.Answer | None:
    """The typed answer of a call's result, None if there is none. Whole objects stay out of the ledger."""
    match result:
        case (port.Node() as before, port.Node() as after):
            keys = {guards.EXCLUDE_LABEL, *_marked_labels(before), *_marked_labels(after)} - {core_marks.STATE_LABEL}
            return audit.NodePatched(before=_shape(before, keys), after=_shape(after, keys))
        case port.Evicted():
            return audit.PodEvicted()
        case port.Gone():
            return audit.PodGone()
        case port.Blocked():
            return audit.EvictionBlocked(budgets=result.budgets, detail=result.reason[:500])
        case reasons.Reason():
            return audit.Accepted(because=result)
        case audit.WebhookAnswer() | audit.PowerAnswer():
            return result
    return None


def _marked_labels(node: port.Node) -> Collection[str]:
    marks = core_marks.read(core_marks.parse(node.annotations.get(core_marks.ANNOTATION, "")))
    return marks.labels if marks is not None else ()


def _shape(node: port.Node, labels: Collection[str]) -> audit.NodeShape:
    """The parts of a node that the portal may have changed. ``labels``: the keys of the labels that it may have set."""
    return audit.NodeShape(
        unschedulable=node.unschedulable,
        taints=tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in node.taints),
        state=node.labels.get(core_marks.STATE_LABEL),
        labels=tuple(f"{key}={node.labels[key]}" for key in sorted(labels) if key in node.labels),
        boot_id=node.boot_id,
    )
