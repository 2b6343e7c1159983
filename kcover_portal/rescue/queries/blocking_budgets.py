"""The disruption budgets that allow no eviction now: what a preview says before a drain meets them.

One that still allows some evictions blocks nobody yet. A cluster or an account without the right to list budgets has
no answer, and then a preview says that it does not know.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from kcover.actions import drain
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port

log = logging.getLogger(__name__)

CACHED_FOR: Final = timedelta(seconds=5)
MAX_NAMESPACES: Final = 20  # whose pods are listed to find the nodes that blocking budgets concern

OnNodes = dict[str, frozenset[str]]  # by the budget, "namespace/name": the nodes of its pods that a drain would evict

_lock = Lock()
_kept: dict[int, tuple[datetime, OnNodes | None]] = {}


class Budgets:
    """The blocking budgets of clusters, each cluster asked once."""

    def __init__(self) -> None:
        self._known: dict[int, list[port.Budget] | None] = {}

    def of_pods(self, cluster: Cluster, pods: Iterable[port.Pod]) -> list[str] | None:
        """Returns those that cover one of the pods, as "namespace/name"; None if they cannot be read."""
        pods = list(pods)
        if not pods:
            return []
        if cluster.pk not in self._known:
            self._known[cluster.pk] = _blocking(cluster)
        found = self._known[cluster.pk]
        if found is None:
            return None
        return sorted(f"{one.namespace}/{one.name}" for one in found if any(map(one.covers, pods)))


def on_nodes(cluster: Cluster, *, now: datetime) -> OnNodes | None:
    """Returns the blocking budgets of the whole cluster with the nodes of their pods; None if they cannot be read.

    The answer is kept for a few seconds, so that many readers cost the cluster no more than one.
    """
    with _lock:
        at, kept = _kept.get(cluster.pk, (None, {}))
    if at is not None and timedelta(0) <= now - at < CACHED_FOR:
        return kept
    found = _read(cluster)
    with _lock:
        for old in [other for other, (then, _) in _kept.items() if now - then >= CACHED_FOR]:
            del _kept[old]
        _kept[cluster.pk] = (now, found)
    return found


def forget() -> None:
    """Forgets the answers that are kept; for tests, in which databases and clusters change."""
    with _lock:
        _kept.clear()


def _read(cluster: Cluster) -> OnNodes | None:
    budgets = _blocking(cluster)
    if budgets is None:
        return None
    namespaces = sorted({one.namespace for one in budgets})
    if len(namespaces) > MAX_NAMESPACES:
        return None
    try:
        kube = fleet.connect(cluster)
        pods = [pod for name in namespaces for pod in kube.list_pods(namespace=name) if _moves(pod)]
    except port.KubeError as error:
        log.info("%s: the pods of disruption budgets could not be read: %s", cluster.name, error)
        return None
    return {f"{one.namespace}/{one.name}": frozenset(pod.node for pod in pods if one.covers(pod)) for one in budgets}


def _moves(pod: port.Pod) -> bool:
    return bool(pod.node) and not drain.leaves(daemonset=pod.daemonset, mirror=pod.mirror, ended=pod.terminal)


def _blocking(cluster: Cluster) -> list[port.Budget] | None:
    try:
        found = fleet.connect(cluster).budgets()
    except port.KubeError as error:
        log.info("%s: its disruption budgets could not be read: %s", cluster.name, error)
        return None
    return [one for one in found if one.disruptions_allowed < 1 and not one.selects_nothing]
