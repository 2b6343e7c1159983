"""Repairs that the portal reports because a node fails again and again.

They change no node: the repair desk decides. What was repaired is not held against the machine: only episodes after its
last repair count, and after the machine took its place.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kcover import actors, reasons
from kcover.repairs.repairs import Part
from kcover.reports import lemons
from kcover.reports.lemons import Lemon
from kcover_portal.accounts.models import Role
from kcover_portal.accounts.queries import Scope
from kcover_portal.config import log_context
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.repairs import queries as desk, services as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.reports import reliability

log = logging.getLogger(__name__)
CODE: Final = "repair_of_lemon"
MAX_REPORTS: Final = 5  # of a cluster in one pass, which is an hour
MAX_UNANSWERED: Final = 10  # of a cluster that nobody has accepted or refused; then the portal waits for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The repair of a node that fails repeatedly. ``repair``: the open one. ``episodes``: since the last one ended.

    ``due``: the portal reports one, if the cluster's setting asks for it.
    """

    repair: int | None
    episodes: int

    @property
    def due(self) -> bool:
        """Returns whether there were enough episodes and no repair is open."""
        return self.repair is None and self.episodes >= lemons.REPAIR_AFTER


def with_outlooks(found: Sequence[Lemon]) -> list[tuple[Lemon, Outlook]]:
    """Each node with the outlook on its repair. Two statements, however many nodes."""
    nodes = [one.place.node for one in found]
    since = {pk: at for pk, at in Node.objects.filter(pk__in=nodes).values_list("pk", "machine_since") if at}
    opened: dict[int, int] = {}
    rows = Repair.objects.filter(node__in=nodes).order_by("-pk").values_list("node_id", "pk", "closed_at")
    for node, pk, closed in rows:
        if closed is None:
            opened[node] = pk
        else:
            since[node] = max(since.get(node, closed), closed)
    return [
        (
            one,
            Outlook(repair=opened.get(one.place.node), episodes=one.episodes_since(since.get(one.place.node))),
        )
        for one in found
    ]


def report_lemons(*, now: datetime) -> list[Repair]:
    """Reports a repair for each node that is due, in the clusters with the setting ``lemon_repairs``.

    At most MAX_REPORTS in a cluster, and none while MAX_UNANSWERED earlier ones are unanswered.
    """
    made: list[Repair] = []
    for cluster in Cluster.objects.filter(lemon_repairs=True).order_by("name"):
        with log_context.bound(cluster=cluster.name):
            made += _report_in(cluster, now=now)
    return made


def _report_in(cluster: Cluster, *, now: datetime) -> list[Repair]:
    due = [
        (lemon, outlook)
        for lemon, outlook in with_outlooks(reliability.nodes_that_fail(Scope.of(cluster), cluster, now=now))
        if outlook.due
    ]
    room = min(MAX_REPORTS, MAX_UNANSWERED - _unanswered(cluster)) if due else 0
    if len(due) > room:
        log.warning("cluster %s: %d repairs of lemons are due, room for %d", cluster.name, len(due), max(room, 0))
    return _report(due[: max(room, 0)], now=now)


def _unanswered(cluster: Cluster) -> int:
    rows = desk.open_repairs().filter(cluster=cluster, state=Repair.State.REPORTED, opened_by=actors.SYSTEM)
    return sum(any(reasons.says(reason, CODE) for reason in row.reasons) for row in rows)


def _report(due: Iterable[tuple[Lemon, Outlook]], *, now: datetime) -> list[Repair]:
    made = []
    for lemon, outlook in due:
        node = Node.objects.select_related("cluster").filter(pk=lemon.place.node).first()
        if node is None:
            continue
        because = (reasons.of(CODE, faults=outlook.episodes, days=lemons.LONG.days), lemon.risk.because)
        try:
            made.append(
                repairs.report(
                    node, part=Part(), because=because, actor=actors.SYSTEM, role=Role.OPERATOR.value, now=now
                )
            )
        except repairs.RepairRefused as error:  # a person was faster
            log.info("no repair of node %s: %s", node.name, error)
    return made
