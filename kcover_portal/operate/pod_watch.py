"""The watch of one cluster's pods: a single stream instead of lists that grow with the cluster."""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime

from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from kcover_portal.operate import event_batches, feed_watch
from kcover_portal.sources import services as sources

STREAM_SECONDS = 50.0  # maximum duration of one watch request
RETRY_SECONDS = 5.0  # the same while a failure has to be looked at again


class PodWatch(feed_watch.FeedWatch):
    """Follows the pods of one cluster while its source of kind ``pods`` is switched on."""

    WHAT = "pods"

    def __init__(self, cluster: Cluster, *, clock: Callable[[], datetime], stop: threading.Event) -> None:
        self._feed = sources.PodFeed(cluster)
        super().__init__(cluster, self._feed, clock=clock, stop=stop)

    def list(self) -> str:
        """Reads the pods of training jobs, a list for each label; returns the resource version to watch from.

        The version is read first, so that the watch shows every change since.
        """
        kube = queries.connect(self._cluster)
        version = kube.pods_version()
        for label in port.JOB_LABELS[:-1]:  # pods with the last, older one carry a newer one too
            changes = [
                port.PodEvent(kind="ADDED", pod=pod, resource_version="")
                for pod in kube.list_pods(having=label, failed=True)
            ]
            self._feed.feed(changes, now=self._clock())
        return version

    def stream(self, version: str) -> str:
        """Follows changes for STREAM_SECONDS; returns the resource version to continue from."""
        timeout = RETRY_SECONDS if self._feed.is_waiting else STREAM_SECONDS
        changes = queries.connect(self._cluster).watch_pods(version, timeout=timeout)
        for batch in event_batches.batches(_of_consequence(changes)):
            if self._stop.is_set():
                break
            self._feed.feed(batch, now=self._clock())
            version = next((one.resource_version for one in reversed(batch) if one.resource_version), version)
        self._feed.feed((), now=self._clock())
        return version


def _of_consequence(changes: Iterator[port.PodEvent]) -> Iterator[port.PodEvent]:
    """The changes of training jobs' pods, and every other one without its pod, for its resource version."""
    for change in changes:
        if change.pod is None or change.pod.job:
            yield change
        else:
            yield port.PodEvent(kind=change.kind, pod=None, resource_version=change.resource_version)
