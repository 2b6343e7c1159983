"""Kubernetes Events about nodes. An Event that cannot be written never stops anything."""

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port

log = logging.getLogger(__name__)

BATCH_EVENTS = 8  # Events between two looks at the mode
MAX_MESSAGE = 1000  # characters, a bound of Kubernetes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """An Event about a node that is not written yet."""

    node: Node
    draft: port.EventDraft

    @classmethod
    def about(
        cls, cluster: Cluster, node: Node, name: str, reason: str, message: str, *, warning: bool, now: datetime
    ) -> "NodeEvent":
        """An Event in the cluster's namespace of Events. ``name`` makes it idempotent."""
        draft = port.EventDraft(
            name=f"kcover-{name}",
            namespace=cluster.event_namespace,
            reason=reason,
            message=message[:MAX_MESSAGE],
            type="Warning" if warning else "Normal",
            involved_kind="Node",
            involved_name=node.name,
            involved_uid=node.uid,
            at=now,
        )
        return cls(node=node, draft=draft)


def write(cluster: Cluster, events: Sequence[NodeEvent], *, threads: Executor | None = None) -> list[bool]:
    """Writes Events, side by side with ``threads``. Returns which were written.

    A few at a time: the mode is read before each group, and the rest is given up once a whole group has failed.
    """
    written: list[bool] = []
    while len(written) < len(events):
        group = events[len(written) : len(written) + BATCH_EVENTS]
        mode, _ = fleet.mode_now(cluster)  # read again: the worker's row may be older than a pause
        done = [] if mode in fleet.MODES_WITHOUT_WRITES else _write(cluster, group, threads)
        if not any(done):
            return written + [False] * (len(events) - len(written))
        written += done
    return written


def _write(cluster: Cluster, events: Sequence[NodeEvent], threads: Executor | None) -> list[bool]:
    try:
        kube = fleet.connect(cluster)
    except port.KubeError as error:
        log.warning("%s: %d Events could not be written: %s", cluster.name, len(events), error)
        return []
    each = partial(_emit, kube, cluster.name)
    return list(threads.map(each, events) if threads is not None else map(each, events))


def _emit(kube: port.Cluster, cluster: str, event: NodeEvent) -> bool:
    if not event.node.in_cluster:
        return False
    try:
        kube.emit(event.draft)
    except port.KubeError as error:
        log.warning("%s: the Event %s could not be written: %s", cluster, event.draft.reason, error)
        return False
    return True
