"""Autopilot's node labels, for schedulers and scripts that read them; only where a cluster asks for them.

A label follows the latest periodic results, but TESTING and EVICT are an invasive run's: its end, or a person, puts
something else in their place, in that of EVICT a run that passes. What is wanted is computed from the live node, right
before the one patch; nothing is written where it is so already, nor to a node that carries ``kcover.io/exclude=true``.
A write that fails is on record, and the next round tries again.
"""

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Count, F, Q

from kcover import autopilot, guards, health
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import CheckResult, CheckTurn, Cluster, Node
from kcover_portal.fleet.services import checking
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

ROUND = 20  # nodes written in one round, of each cluster
FIRST = 15  # of these by rank; the rest is drawn from all the others, so that none that fails is in their way
OF_THE_GPUS = tuple(name for name in autopilot.PERIODIC if name != "ping")  # whose results the label follows
ACTOR = "system"


class Held(Exception):
    """The mode has changed since the round began: nothing more is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a node's labels should say: by its periodic results, by invasive turns that have ended and are not told yet
    (in their order, so that what one found is lost only by what a later one found), by one that goes on."""

    node: Node
    periodic: str | None
    ended: tuple[CheckTurn, ...] = ()
    under_way: CheckTurn | None = None

    def change(self, live: port.Node) -> port.NodeChange:
        """The patch for the node as it is read right now; remembers what TESTING takes the place of."""
        current = live.labels.get(autopilot.GPU_HEALTH, "")
        if live.labels.get(guards.EXCLUDE_LABEL) == "true":
            return port.NodeChange()
        labels: dict[str, str | None] = {}
        annotations: dict[str, str | None] = {}
        for turn in self.ended:
            self._end(turn, str(labels.get(autopilot.GPU_HEALTH) or current), labels, annotations)
        if self.under_way is not None:
            before = labels.get(autopilot.GPU_HEALTH) or current
            if before != autopilot.TESTING:
                CheckTurn.objects.filter(pk=self.under_way.pk).update(label_before=before)
            labels[autopilot.GPU_HEALTH] = autopilot.TESTING
        elif not self.ended and current not in autopilot.KEPT and self.periodic is not None:
            labels[autopilot.GPU_HEALTH] = self.periodic
        return port.NodeChange(labels=labels, annotations=annotations)

    def _end(
        self, turn: CheckTurn, current: str, labels: dict[str, str | None], annotations: dict[str, str | None]
    ) -> None:
        """What the end of a turn makes of a node that carries ``current``.

        A failure that does not evict takes no EVICT back: DCGM leaves tests out once one has failed, so that what
        evicted may not have run again.
        """
        results = checking.results_of(turn)
        verdict = autopilot.verdict(results, fatal=settings.KCOVER_DCGM_FATAL_ERRORS)
        if verdict == autopilot.WARN and autopilot.EVICT in (current, turn.label_before):
            labels[autopilot.GPU_HEALTH] = autopilot.EVICT
        elif verdict is not None:
            labels[autopilot.GPU_HEALTH] = verdict
        elif current == autopilot.TESTING:  # it came to no end: what was there before, or what the others say
            before = turn.label_before if turn.label_before == autopilot.EVICT else self.periodic or turn.label_before
            labels[autopilot.GPU_HEALTH] = before
        at = turn.finished_at
        told = autopilot.level_3(results, at=at) if turn.run.level > 2 and at is not None else None
        if told is not None:
            labels[autopilot.LEVEL_3], annotations[autopilot.LEVEL_3_OUTPUT] = told


def write(cluster: Cluster, *, clock: Callable[[], datetime], rng: random.Random | None = None) -> int:
    """One round: at most ROUND nodes, mostly those whose turns have ended, then those whose turns go on.

    Returns how many were written. Raises nothing that the cluster does.
    """
    if not cluster.autopilot_labels or queries.mode_now(cluster)[0] in queries.SILENT:
        return 0
    written = 0
    for one in _chosen(_wanted(cluster), rng or random.Random()):
        try:
            written += _write(cluster, one, clock=clock)
        except Held:
            break
        except port.Unavailable as error:
            log.info("cluster %s: labels are written later: %s", cluster.name, error)
            break
        except port.KubeError as error:
            log.warning("cluster %s: %s is not labelled: %s", cluster.name, one.node.name, error)
    return written


def _chosen(wanted: list[Wanted], rng: random.Random) -> list[Wanted]:
    """Whom this round writes, in its order; at random among equals."""
    rng.shuffle(wanted)
    wanted.sort(key=lambda one: 0 if one.ended else 1 if one.under_way is not None else 2)
    first, others = wanted[:FIRST], wanted[FIRST:]
    return [*first, *rng.sample(others, min(ROUND - len(first), len(others)))]


def _wanted(cluster: Cluster) -> list[Wanted]:
    """The nodes whose row, as the watch last saw it, is not what it should be. Three queries, whatever their number."""
    turns = _turns(cluster)
    here = Q(node__cluster=cluster, node__known=True, name__in=OF_THE_GPUS)
    old = ~Q(name__in=health.UNTIL_RUN_AGAIN) & Q(seen_at__lt=F("node__agent__seen_at") - health.RUN_AGAIN)
    counts = (
        CheckResult.objects.filter(here)
        .exclude(old)
        .order_by()
        .values_list("node")
        .annotate(failed=Count("pk", filter=Q(status="fail")), good=Count("pk", filter=Q(status__in=("pass", "warn"))))
    )
    periodic: dict[int, str | None] = {
        node: autopilot.periodic_label([*["fail"] * (failed > 0), *["pass"] * (good > 0)])
        for node, failed, good in counts
    }
    nodes = Node.objects.filter(cluster=cluster, known=True).only("pk", "name", "labels")
    found = []
    for node in nodes:
        of = turns.get(node.pk, [])
        ended = tuple(turn for turn in of if turn.finished_at is not None)
        under_way = next((turn for turn in of if turn.finished_at is None), None)
        found.append(Wanted(node=node, periodic=periodic.get(node.pk), ended=ended, under_way=under_way))
    return [one for one in found if _differs(one)]


def _turns(cluster: Cluster) -> dict[int, list[CheckTurn]]:
    """By node its invasive turns whose end is not written yet, in their order; one that goes on is the last."""
    rows = CheckTurn.objects.filter(node__cluster=cluster, invasive=True, labelled_at=None)
    found: dict[int, list[CheckTurn]] = {}
    for turn in rows.select_related("run").order_by(F("finished_at").asc(nulls_last=True), "pk"):
        if turn.finished_at is not None or turn.state == CheckTurn.State.ASKED:
            found.setdefault(turn.node_id, []).append(turn)
    return found


def _differs(one: Wanted) -> bool:
    labels: Mapping[str, str] = one.node.labels
    if labels.get(guards.EXCLUDE_LABEL) == "true":
        return False
    current = labels.get(autopilot.GPU_HEALTH, "")
    if one.ended or one.under_way is not None:
        return bool(one.ended) or current != autopilot.TESTING
    return one.periodic is not None and current not in (*autopilot.KEPT, one.periodic)


def _write(cluster: Cluster, one: Wanted, *, clock: Callable[[], datetime]) -> bool:
    if queries.mode_now(cluster)[0] in queries.SILENT:
        raise Held
    kube = queries.connect(cluster)
    _note(cluster, one, "begun", now=clock(), data={"wanted": "testing" if one.under_way else one.periodic})
    try:
        before, after = kube.apply_node(one.node.name, one.change)
    except port.KubeError as error:
        _note(cluster, one, "failed", now=clock(), data={"error": str(error), "kind": type(error).__name__})
        raise
    _note(cluster, one, "done", now=clock(), data={"before": _shown(before), "after": _shown(after)})
    if one.ended:
        CheckTurn.objects.filter(pk__in=[turn.pk for turn in one.ended]).update(labelled_at=clock())
    return before.labels != after.labels


def _shown(node: port.Node) -> dict[str, str]:
    return {key: node.labels[key] for key in (autopilot.GPU_HEALTH, autopilot.LEVEL_3) if key in node.labels}


def _note(cluster: Cluster, one: Wanted, end: str, *, now: datetime, data: dict[str, object]) -> None:
    name = one.node.name
    ledger.write(
        cluster.name, actor=ACTOR, verb=f"autopilot_labels.{end}", subject=f"node {name}", node=name, now=now, data=data
    )
