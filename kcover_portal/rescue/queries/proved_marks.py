"""What the portal's rows state that it changed on a node: all that it takes back.

The mark on the node proves nothing by itself. Its kubelet may write it, but may not remove taints or set the labels of
Kubernetes' domains, so a mark that were believed would lend the kubelet the portal's rights.
"""

from collections.abc import Sequence
from typing import Final

from kcover.actions import offline, taint
from kcover.nodes import marks as core_marks
from kcover_portal.fleet.models import Node
from kcover_portal.rescue.models import Rescue

# Taints with these keys are the portal's own: it takes them back also if their row was lost, with a restored database.
OWN_TAINTS: Final = (taint.DEFAULT_KEY, offline.TAINT[0])


def known(node: Node, *, uid: str) -> list[core_marks.Marks]:
    """The marks in the rows of the node's rescues on this machine, also those of a write without an answer."""
    rows = Rescue.objects.filter(node=node, node_uid__in=("", uid)).exclude(marks={}, marks_begun={})
    stored = rows.order_by("pk").values_list("marks", "marks_begun")
    found = [core_marks.read(content) for pair in stored for content in pair]
    return [marks for marks in found if marks is not None]


def by(known: Sequence[core_marks.Marks], shown: core_marks.Marks) -> core_marks.Marks:
    """The marks on the node as far as these of the rows prove them."""
    return shown.proved(known, own_taints=OWN_TAINTS)
