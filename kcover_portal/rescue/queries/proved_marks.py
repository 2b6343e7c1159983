"""What the portal's rows state that it changed on a node: all that it takes back.

The mark on the node proves nothing by itself. Its kubelet may write it, but may not remove taints or set the labels of
Kubernetes' domains, so a mark that were believed would lend the kubelet the portal's rights.
"""

from collections.abc import Sequence
from typing import Final

from kcover.actions import offline, taint
from kcover.nodes import marks as core_marks
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
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


def still_on(node: Node, live: port.Node) -> core_marks.Marks | None:
    """What the rows state and the live node still shows, where somebody has removed its mark; None without taints and
    labels. A cordon is left out: without the mark nobody says whose it is.
    """
    rows = known(node, uid=live.uid)
    stated = core_marks.Marks(
        rescue=0,
        taints=tuple(dict.fromkeys(taint for record in rows for taint in record.taints)),
        labels={key: None for record in rows for key in record.labels},
        given={key: live.labels[key] for record in rows for key in record.given if key in live.labels},
    )
    present = {(taint.key, taint.value, taint.effect) for taint in live.taints}
    found = by(rows, stated).unproved(core_marks.Marks(rescue=0), labels=live.labels, taints=present)
    return found if found.taints or found.given else None
