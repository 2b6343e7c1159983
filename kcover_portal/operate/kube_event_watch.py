"""The watch of one cluster's Events. A flood of Events without consequence costs their decoding and a comparison."""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime

from kcover.sources import kube_events
from kcover.sources.observation import Unreadable
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from kcover_portal.lib.errors import FieldError
from kcover_portal.operate import event_batches, feed_watch
from kcover_portal.preflight import services as preflight
from kcover_portal.sources import services as sources

STREAM_SECONDS = 50.0  # maximum duration of one watch request


class KubeEventWatch(feed_watch.FeedWatch):
    """Follows the Events of one cluster while its source of kind ``events`` is switched on."""

    WHAT = "Events"

    def __init__(self, cluster: Cluster, *, clock: Callable[[], datetime], stop: threading.Event) -> None:
        self._feed = sources.EventFeed(cluster, take_preflight)
        super().__init__(cluster, self._feed, clock=clock, stop=stop)
        self._version = ""

    def list(self) -> str:
        """Reads the Events that the cluster has; returns the resource version to watch from."""
        listed = queries.connect(self._cluster).list_events()
        self._feed.feed(listed.items, now=self._clock())
        return listed.resource_version

    def stream(self, version: str) -> str:
        """Follows changes for STREAM_SECONDS; returns the resource version to continue from."""
        self._version = version
        changes = queries.connect(self._cluster).watch_events(version, timeout=STREAM_SECONDS)
        for batch in event_batches.batches(self._of_consequence(changes)):
            if self._stop.is_set():
                return version
            self._feed.feed(batch, now=self._clock())
        self._feed.feed((), now=self._clock())
        return self._version

    def _of_consequence(self, changes: Iterator[port.EventEvent]) -> Iterator[port.SeenEvent]:
        for change in changes:
            seen = change.event
            if seen is not None and change.kind != "DELETED" and self._feed.is_of_consequence(seen):
                yield seen
            self._version = change.resource_version or self._version


def take_preflight(cluster: Cluster, report: kube_events.PreflightEvent, now: datetime) -> None:
    """Stores the report of a node if the cluster shows a pod of the workload there: a kubelet may write any Event.

    Raises Unreadable if it is not counted, and node_selection.Unanswered if the cluster does not answer.
    """
    sent = preflight.SentReport(namespace=report.namespace, workload=report.workload, report=report.body, at=report.at)
    try:
        preflight.receive_from_node(cluster, report.node, sent, now=now)
    except FieldError as refusal:
        raise Unreadable(refusal.field.replace("report", "message", 1), refusal.reason) from refusal
