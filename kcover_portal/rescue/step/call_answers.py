"""The cluster's answer to a call, as the audit log stores it."""

from kcover import audit, reasons
from kcover import marks as core_marks
from kcover_portal.kube import port


def of(result: object) -> audit.Answer | None:
    """The typed answer of a call's result, None if there is none. Whole objects stay out of the ledger."""
    match result:
        case (port.Node() as before, port.Node() as after):
            return audit.NodePatched(before=_shape(before), after=_shape(after))
        case port.Evicted():
            return audit.PodEvicted()
        case port.Gone():
            return audit.PodGone()
        case port.Blocked():
            return audit.EvictionBlocked(budgets=result.budgets, detail=result.reason[:500])
        case reasons.Reason():
            return audit.Accepted(because=result)
        case audit.WebhookAnswer():
            return result
    return None


def _shape(node: port.Node) -> audit.NodeShape:
    """The parts of a node that the portal may have changed."""
    return audit.NodeShape(
        unschedulable=node.unschedulable,
        taints=tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in node.taints),
        state=node.labels.get(core_marks.STATE_LABEL),
        boot_id=node.boot_id,
    )
