"""Reconciling: where no rescue is open that would look, what the rows say is on a node follows what is on it.

They part when a worker dies between its call and its rows and a person then ends the rescue; when a node is deleted and
made anew under its name; when somebody takes the portal's mark away. Left so, a node would keep its place under the
guards for ever, or be isolated with nobody knowing.
"""

import logging
from datetime import datetime

from django.db import transaction

from kcover import marks as kernel_marks
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.services import opening, requesting

log = logging.getLogger(__name__)

MOST = 100  # nodes of one cluster in one round


def reconcile(*, now: datetime) -> int:
    """Looks at the nodes whose rows are at odds with what the watch shows; returns at how many.

    A cluster that is paused, has many of them or does not answer is in the way of no other; and of many nodes of one,
    others are looked at each time.
    """
    looked = 0
    for cluster in Cluster.objects.filter(pk__in=queries.at_odds().values("cluster")):
        if fleet.mode_of(cluster)[0] in fleet.SILENT:
            continue
        for node in queries.at_odds().filter(cluster=cluster).select_related("cluster").order_by("?")[:MOST]:
            looked += 1
            if not _look(node, now=now):
                break
    return looked


def _look(node: Node, *, now: datetime) -> bool:
    """Asks the cluster, since the watch may only be late; only what it says now counts. False: it does not answer."""
    marked = queries.marked_on(node)
    try:
        live = fleet.connect(node.cluster).get_node(node.name)
    except port.KubeError as error:
        log.info("%s: not reconciled: %s", node.name, error)
        return not isinstance(error, port.Unavailable)
    shown = kernel_marks.read(kernel_marks.parse(live.annotations.get(kernel_marks.ANNOTATION, "")))
    if marked is not None and shown is None:
        _forget(node, marked, now=now)
    if marked is None and shown is not None:
        _know(node, shown, now=now)
    if shown is not None and (shown.cordon or shown.foreign_cordon) and not live.unschedulable:
        let_go(node, now=now)
    return True


def let_go(node: Node, *, now: datetime) -> None:
    """Somebody uncordoned a node that no rescue is open on: its marks go, too (invariant 20)."""
    try:
        requesting.request(node, "release", actor="system", reason="somebody uncordoned the node by hand", now=now)
    except opening.Refused as refusal:
        log.info("%s keeps the portal's marks for now: %s", node.name, refusal)


@transaction.atomic
def _forget(node: Node, marked: Rescue, *, now: datetime) -> None:
    """The node carries no mark: it was made anew, or somebody took the mark away."""
    Node.objects.select_for_update(no_key=True).get(pk=node.pk)
    if queries.open_on(node) is not None or queries.marked_on(node) != marked:
        return
    Rescue.objects.filter(node=node).exclude(marks={}).update(marks={})
    _note(node, marked, "marks.gone", now=now)


@transaction.atomic
def _know(node: Node, shown: kernel_marks.Marks, *, now: datetime) -> None:
    """The node carries the mark of a rescue that ended without hearing that its write had been made."""
    Node.objects.select_for_update(no_key=True).get(pk=node.pk)
    rescue = Rescue.objects.filter(pk=shown.rescue, node=node).first()
    if rescue is None or queries.open_on(node) is not None or queries.marked_on(node) is not None:
        return
    Rescue.objects.filter(pk=rescue.pk).update(marks=shown.to_json())
    _note(node, rescue, "marks.found", now=now)


def _note(node: Node, rescue: Rescue, verb: str, *, now: datetime) -> None:
    ledger.write(
        node.cluster.name,
        actor="system",
        verb=verb,
        subject=f"node {node.name}",
        node=node.name,
        rescue=rescue.pk,
        now=now,
    )
