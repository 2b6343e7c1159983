"""Autopilot's node labels, for schedulers and scripts that read them; only in clusters that enable them.

A label follows the latest periodic results. TESTING and EVICT belong to invasive runs: TESTING is replaced when the run
ends, EVICT by a run that passes; a person may replace either. The wanted labels are computed from the live node right
before the single patch. Nothing is written if the node already has them or carries ``kcover.io/exclude=true``. A failed
write is recorded, and the next round tries again.
"""

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Q

from kcover import audit
from kcover.checks import autopilot
from kcover.decisions import guards
from kcover.nodes import health
from kcover_portal.checks.models import CheckTarget
from kcover_portal.checks.services import node_checks
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import CheckResult, Cluster, Node
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

MAX_NODES_PER_ROUND = 20  # of each cluster
MAX_RANKED_NODES = 15  # of these by rank; the others are drawn at random, so that failing nodes block nobody
GPU_CHECKS = tuple(name for name in autopilot.PERIODIC_CHECKS if name != "ping")  # whose results the label follows
ACTOR = "system"


class WritesForbidden(Exception):
    """The mode changed during the round: no more writes are allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFacts:
    """The facts that decide a node's labels: its periodic results, its finished invasive checks that are not yet
    written, and the running one. Finished checks are in their order, so that only a later result replaces an earlier
    one.
    """

    node: Node
    periodic: str | None
    ended: tuple[CheckTarget, ...] = ()
    under_way: CheckTarget | None = None

    def change(self, live: port.Node) -> port.NodeChange:
        """The patch for the node as just read; stores the label that TESTING replaces."""
        current = live.labels.get(autopilot.GPU_HEALTH, "")
        if live.labels.get(guards.EXCLUDE_LABEL) == "true":
            return port.NodeChange()
        labels: dict[str, str | None] = {}
        annotations: dict[str, str | None] = {}
        for target in self.ended:
            self._end(target, str(labels.get(autopilot.GPU_HEALTH) or current), labels, annotations)
        if self.under_way is not None:
            before = labels.get(autopilot.GPU_HEALTH) or current
            if before != autopilot.TESTING:
                CheckTarget.objects.filter(pk=self.under_way.pk).update(label_before=before)
            labels[autopilot.GPU_HEALTH] = autopilot.TESTING
        elif not self.ended and current not in autopilot.STICKY_LABELS and self.periodic is not None:
            labels[autopilot.GPU_HEALTH] = self.periodic
        return port.NodeChange(labels=labels, annotations=annotations)

    def _end(
        self, target: CheckTarget, current: str, labels: dict[str, str | None], annotations: dict[str, str | None]
    ) -> None:
        """The labels after finished checks of a node that carries ``current``.

        A failure that does not evict keeps EVICT: DCGM skips tests after a failed one, so the test that evicted may not
        have run again.
        """
        results = node_checks.results_of(target)
        verdict = autopilot.deep_check_label(results, fatal=settings.KCOVER_DCGM_FATAL_ERRORS)
        if verdict == autopilot.WARN and autopilot.EVICT in (current, target.label_before):
            labels[autopilot.GPU_HEALTH] = autopilot.EVICT
        elif verdict is not None:
            labels[autopilot.GPU_HEALTH] = verdict
        elif current == autopilot.TESTING:  # no verdict: the label before, or that of the periodic results
            before = (
                target.label_before if target.label_before == autopilot.EVICT else self.periodic or target.label_before
            )
            labels[autopilot.GPU_HEALTH] = before
        at = target.finished_at
        label = autopilot.level_3_label(results, at=at) if target.run.level > 2 and at is not None else None
        if label is not None:
            labels[autopilot.LEVEL_3], annotations[autopilot.LEVEL_3_OUTPUT] = label


def write(cluster: Cluster, *, clock: Callable[[], datetime], rng: random.Random | None = None) -> int:
    """One round, at most MAX_NODES_PER_ROUND nodes: first those with finished invasive checks, then with running ones.

    Returns the number of nodes written. Errors of the cluster are logged, not raised.
    """
    if not cluster.autopilot_labels or queries.mode_now(cluster)[0] in queries.MODES_WITHOUT_WRITES:
        return 0
    written = 0
    for wanted in _chosen(_wanted(cluster), rng or random.Random()):  # nosec B311
        try:
            written += _write(cluster, wanted, clock=clock)
        except WritesForbidden:
            break
        except port.Unavailable as error:
            log.info("cluster %s: labels are postponed: %s", cluster.name, error)
            break
        except port.KubeError as error:
            log.warning("cluster %s: %s is not labelled: %s", cluster.name, wanted.node.name, error)
    return written


def _chosen(wanted: list[LabelFacts], rng: random.Random) -> list[LabelFacts]:
    """The nodes of this round in their order; random among equals."""
    rng.shuffle(wanted)
    wanted.sort(key=lambda node: 0 if node.ended else 1 if node.under_way is not None else 2)
    first, others = wanted[:MAX_RANKED_NODES], wanted[MAX_RANKED_NODES:]
    return [*first, *rng.sample(others, min(MAX_NODES_PER_ROUND - len(first), len(others)))]


def _wanted(cluster: Cluster) -> list[LabelFacts]:
    """The nodes whose labels, as last seen by the watch, differ from the wanted ones. Three queries in all."""
    targets = _targets(cluster)
    selected = Q(node__cluster=cluster, node__in_cluster=True, name__in=GPU_CHECKS)
    old = ~Q(name__in=health.CHECKS_VALID_UNTIL_RERUN) & Q(
        seen_at__lt=F("node__agent__seen_at") - health.AUTOPILOT_RESULT_VALID_FOR
    )
    counts = (
        CheckResult.objects.filter(selected)
        .exclude(old)
        .order_by()
        .values_list("node")
        .annotate(failed=Count("pk", filter=Q(status="fail")), good=Count("pk", filter=Q(status__in=("pass", "warn"))))
    )
    periodic: dict[int, str | None] = {
        node: autopilot.periodic_label([*["fail"] * (failed > 0), *["pass"] * (good > 0)])
        for node, failed, good in counts
    }
    nodes = Node.objects.filter(cluster=cluster, in_cluster=True).only("pk", "name", "labels")
    found = []
    for node in nodes:
        of = targets.get(node.pk, [])
        ended = tuple(target for target in of if target.finished_at is not None)
        under_way = next((target for target in of if target.finished_at is None), None)
        found.append(LabelFacts(node=node, periodic=periodic.get(node.pk), ended=ended, under_way=under_way))
    return [node for node in found if _differs(node)]


def _targets(cluster: Cluster) -> dict[int, list[CheckTarget]]:
    """Invasive checks whose result is not yet written, by node and in their order; a running one is last."""
    rows = CheckTarget.objects.filter(node__cluster=cluster, invasive=True, labelled_at=None)
    found: dict[int, list[CheckTarget]] = {}
    for target in rows.select_related("run").order_by(F("finished_at").asc(nulls_last=True), "pk"):
        if target.finished_at is not None or target.state == CheckTarget.State.REQUESTED:
            found.setdefault(target.node_id, []).append(target)
    return found


def _differs(wanted_labels: LabelFacts) -> bool:
    labels: Mapping[str, str] = wanted_labels.node.labels
    if labels.get(guards.EXCLUDE_LABEL) == "true":
        return False
    current = labels.get(autopilot.GPU_HEALTH, "")
    if wanted_labels.ended or wanted_labels.under_way is not None:
        return bool(wanted_labels.ended) or current != autopilot.TESTING
    return wanted_labels.periodic is not None and current not in (*autopilot.STICKY_LABELS, wanted_labels.periodic)


def _write(cluster: Cluster, wanted_labels: LabelFacts, *, clock: Callable[[], datetime]) -> bool:
    if queries.mode_now(cluster)[0] in queries.MODES_WITHOUT_WRITES:
        raise WritesForbidden
    kube = queries.connect(cluster)
    call: dict[str, Any] = {
        "call": audit.Call.AUTOPILOT_LABELS,
        "target": f"node {wanted_labels.node.name}",
        "node": wanted_labels.node.name,
    }
    wanted = audit.HealthLabel(value="testing" if wanted_labels.under_way else wanted_labels.periodic)
    _note(cluster, audit.ClusterCallBegun(wanted=wanted, **call), now=clock())
    try:
        before, after = kube.apply_node(wanted_labels.node.name, wanted_labels.change)
    except port.KubeError as error:
        failed = audit.ClusterCallFailed(because=kube_reasons.of(error), held_back=False, **call)
        _note(cluster, failed, now=clock())
        raise
    patched = audit.LabelsPatched(before=_shown(before), after=_shown(after))
    _note(cluster, audit.ClusterCallDone(answer=patched, **call), now=clock())
    if wanted_labels.ended:
        CheckTarget.objects.filter(pk__in=[target.pk for target in wanted_labels.ended]).update(labelled_at=clock())
    return before.labels != after.labels


def _shown(node: port.Node) -> dict[str, str]:
    return {key: node.labels[key] for key in (autopilot.GPU_HEALTH, autopilot.LEVEL_3) if key in node.labels}


def _note(cluster: Cluster, act: audit.ClusterCall, *, now: datetime) -> None:
    ledger.record(cluster.name, act, actor=ACTOR, now=now)
