"""Free the pods of a dead kubelet as Kubernetes documents it under "Non-graceful node shutdown".

Deleted pods stay in Terminating until their kubelet has ended them. The taint makes the cluster delete all pods
of a NotReady node with force. That is safe only if none of their containers runs any more. So it is set only if the
machine is proved rebooted, and the kubelet has never run in the new boot, or if the machine is proved off.
"""

from datetime import datetime, timedelta

from kcover import audit, reasons
from kcover_portal.fleet.models import Agent
from kcover_portal.kube import port
from kcover_portal.machines import services as machines
from kcover_portal.machines.drivers import Power
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks

MAX_SKEW_SECONDS = 30  # of a clock that dates a report; a cluster notices a silent kubelet after 40 s
TAINT = port.Taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")


def is_silent(node: port.Node) -> bool:
    """Returns whether the cluster has stopped hearing the kubelet. One that still posts ends its pods itself."""
    return node.conditions.get("Ready") == "Unknown"


def is_rebooted(context: Context, node: port.Node, *, silent_since: datetime) -> bool:
    """Returns whether the node's agent proves that the last boot of the kubelet is over.

    As in the reboot step, only another boot ID proves it. It counts if the agent wrote and sent it after the kubelet
    was seen silent: an agent also delivers what it kept from earlier boots. And the kubelet must never have reported
    it, because otherwise pods may run in that boot.
    """
    if not node.boot_id:
        return False
    earlier = ("", node.boot_id, *context.node.past_boots)
    agent = Agent.objects.filter(node=context.node, seen_at__gt=silent_since).exclude(boot_id__in=earlier).first()
    if agent is None or abs(agent.skew) > MAX_SKEW_SECONDS:
        return False
    return agent.seen_at + timedelta(seconds=agent.skew) > silent_since


def is_off(context: Context, node: port.Node) -> bool:
    """Returns whether the machine's controller says that it is off. It must be proved to be this machine's."""
    try:
        controller = machines.controller_of(context.node, node)
        controller.check_stated()
        proves = controller.driver.setting("check_uuid") and not controller.is_requested
        return proves and controller.look().power is Power.OFF
    except machines.Unusable:
        return False


def is_down(context: Context, node: port.Node, *, silent_since: datetime) -> bool:
    """Returns whether nothing of the kubelet's last boot runs any more."""
    return is_rebooted(context, node, silent_since=silent_since) or is_off(context, node)


def free(context: Context, node: port.Node, *, silent_since: datetime) -> reasons.Reason:
    """Taints the node once its machine is proved rebooted or off. Returns what is waited for."""
    freed = reasons.of("pods_freed", node=node.name, taint=TAINT.key)
    if any(taint.key == TAINT.key for taint in node.taints):
        return freed  # the cluster looks at the key only, so somebody else's taint does the same
    if not is_down(context, node, silent_since=silent_since):
        return reasons.of("kubelet_silent", node=node.name)
    node_marks.change(context, audit.Call.TAINT, state=None, taint=TAINT, destructive=True)
    return freed


def take_back(context: Context, node: port.Node) -> None:
    """Removes the taint if the portal set it: the pods have left, or the node works again."""
    if (TAINT.key, TAINT.value, TAINT.effect) in node_marks.adopt(context, node).taints:
        node_marks.remove_taint(context, TAINT)
