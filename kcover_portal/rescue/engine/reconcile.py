"""Reconcile rows with nodes that have no open rescue: the rows follow the state of the node.

They differ when a worker dies between its call and its rows and a person then ends the rescue, when a node is deleted
and created again under its name, and when someone removes the portal's mark. Otherwise such a node would count under
the guards for ever, or stay isolated unnoticed.
"""

import logging
from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover.nodes import marks as core_marks
from kcover_portal.config import log_context
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.control import burn_ins, requests
from kcover_portal.rescue.engine import device_drift, probation_end
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import proved_marks

log = logging.getLogger(__name__)

MAX_NODES = 100  # of one cluster in one round


def reconcile(*, now: datetime) -> int:
    """Checks the nodes whose rows differ from what the watch shows; returns how many.

    A cluster that is paused, has many such nodes or does not answer does not delay the others. If a cluster has many
    such nodes, each round checks different ones.
    """
    looked = 0
    for cluster in Cluster.objects.filter(pk__in=queries.at_odds().values("cluster")):
        if fleet.mode_of(cluster)[0] in fleet.MODES_WITHOUT_WRITES:
            continue
        for node in queries.at_odds().filter(cluster=cluster).select_related("cluster").order_by("?")[:MAX_NODES]:
            looked += 1
            with log_context.bound(cluster=cluster.name, node=node.name):
                answered = _check_node(node, now=now)
            if not answered:
                break
    device_drift.look(now=now)
    burn_ins.begin_due(now=now)
    on_probation = Node.objects.filter(probation_until__isnull=False, in_cluster=True)
    probation_end.note_removed_by_hand(probation_end.without_taint(on_probation)[:MAX_NODES], now=now)
    return looked


def _check_node(node: Node, *, now: datetime) -> bool:
    """Reads the live node, because the watch may only be late. False if the cluster does not answer."""
    marked = queries.marked_on(node)
    try:
        live = fleet.connect(node.cluster).get_node(node.name)
    except port.KubeError as error:
        log.info("%s: not reconciled: %s", node.name, error)
        return not isinstance(error, port.Unavailable)
    shown = core_marks.read(core_marks.parse(live.annotations.get(core_marks.ANNOTATION, "")))
    if marked is not None and shown is None and proved_marks.still_on(node, live) is None:
        _drop_marks(node, marked, now=now)
    if marked is None and shown is not None:
        _adopt_marks(node, shown, now=now)
    if shown is not None and (shown.cordon or shown.foreign_cordon) and not live.unschedulable:
        let_go(node, now=now)
    return True


def let_go(node: Node, *, now: datetime) -> None:
    """Someone uncordoned a node without an open rescue: its marks go as well (invariant 20)."""
    try:
        requests.request(
            node,
            "release",
            actor="system",
            because=reasons.of("uncordoned_by_hand", node=node.name),
            now=now,
            requester=Rescue.Requester.SYSTEM,
        )
    except create.RescueRefused as refusal:
        log.info("%s keeps the portal's marks for now: %s", node.name, refusal)


@transaction.atomic
def _drop_marks(node: Node, marked: Rescue, *, now: datetime) -> None:
    """Handles a node without a mark: it was created again, or someone removed the mark.

    Only where nothing is left: while the node has the portal's taints or labels, the row is all that proves them.
    """
    Node.objects.select_for_update(no_key=True).get(pk=node.pk)
    if queries.open_on(node) is not None or queries.marked_on(node) != marked:
        return
    Rescue.objects.filter(node=node).exclude(marks={}, marks_begun={}).update(marks={}, marks_begun={})
    _note(node, audit.MarksGone(rescue=marked.pk, node=node.name), now=now)


@transaction.atomic
def _adopt_marks(node: Node, shown: core_marks.Marks, *, now: datetime) -> None:
    """Handles a node with the mark of a rescue that ended without learning that its write was made."""
    Node.objects.select_for_update(no_key=True).get(pk=node.pk)
    rescue = Rescue.objects.filter(pk=shown.rescue, node=node).first()
    if rescue is None or queries.open_on(node) is not None or queries.marked_on(node) is not None:
        return
    proved = proved_marks.by(proved_marks.known(node, uid=node.uid), shown)
    Rescue.objects.filter(pk=rescue.pk).update(marks=proved.to_json(), marks_begun={})
    _note(node, audit.MarksFound(rescue=rescue.pk, node=node.name), now=now)


def _note(node: Node, act: audit.Act, *, now: datetime) -> None:
    ledger.record(node.cluster.name, act, actor="system", now=now)
