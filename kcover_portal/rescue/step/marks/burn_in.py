"""A new node before its first work: the readiness taint keeps work away, and the marks name the rescue.

The rescue has no cordon. So the node takes work again only if the taint is removed, by the rescue or by a person.
"""

from kcover import audit, reasons
from kcover.nodes import marks as core_marks, readiness_taint
from kcover.nodes.node_stage import Stage
from kcover_portal.fleet.models import Agent
from kcover_portal.kube import port
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.errors import TakenBack
from kcover_portal.rescue.step.marks import node_marks


def keep_from_work(context: Context) -> port.Node:
    """Puts the rescue's marks and the state label on the node, if they are missing. Returns the live node.

    Raises TakenBack if someone removed the taint or the marks: a person has put the node into service.
    """
    node = node_marks.expect_isolated(context)
    if not readiness_taint.among(node.taints):
        raise TakenBack(reasons.of("readiness_taint_removed", taint=readiness_taint.KEY, node=node.name))
    if not context.rescue.marks or node.labels.get(core_marks.STATE_LABEL) != Stage.BURN_IN:
        node_marks.change(context, audit.Call.LABEL, state=Stage.BURN_IN)
    return node


def agent_reports(context: Context, node: port.Node) -> bool:
    """Returns whether the node's agent has reported in the node's present boot."""
    return Agent.objects.filter(node=context.node, boot_id=node.boot_id).exists()
