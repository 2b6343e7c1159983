"""The watch: in the leading process, threads per cluster synchronize its nodes, wake the engine, and feed sources.

A cluster that does not answer blocks only its own threads. While it does not answer, nothing is concluded about its
nodes (invariant 34).
"""

import itertools
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import close_old_connections, transaction
from django.db.utils import Error as DatabaseError

from kcover import reasons
from kcover_portal.config import log_context
from kcover_portal.encryption import stored
from kcover_portal.fleet import queries, services
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_rows, storable_values
from kcover_portal.incidents import services as incidents
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.ledger import services as ledger
from kcover_portal.operate import (
    event_batches,
    heartbeats,
    kube_event_watch,
    lease_watch,
    pod_watch,
    watch_pace,
)
from kcover_portal.rescue import services as rescue
from kcover_portal.runtime.services import leases
from kcover_portal.sources import services as sources

log = logging.getLogger(__name__)

LEASE = "watch"
LEASE_SECONDS = 15.0
ROUND_SECONDS = 3.0  # between checks of the lease and the list of clusters
STREAM_SECONDS = 50.0  # maximum duration of one watch request
NOTE_INTERVAL = timedelta(seconds=5)
BACKOFF_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0)


class Watch:
    """Runs until ``stop`` is set and leads while it holds the lease."""

    def __init__(self, *, clock: Callable[[], datetime], stop: threading.Event) -> None:
        self._clock = clock
        self._stop = stop
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        self._threads: dict[tuple[int, str], _Running] = {}

    def run(self) -> None:
        """Competes for the lease and follows the list of clusters until stopped, then releases the lease."""
        while not self._stop.is_set():
            try:
                close_old_connections()
                now = self._clock()
                until = now + timedelta(seconds=LEASE_SECONDS)
                if leases.acquire(LEASE, holder=self._holder, until=until, now=now):
                    sources.make_watched_sources(now)
                    self._follow(queries.clusters())
                else:
                    self._follow([])
            except DatabaseError as error:
                log.warning("the watch cannot reach the database: %s", error)
            heartbeats.touch()
            self._stop.wait(ROUND_SECONDS)
        self._follow([])
        try:
            leases.release(LEASE, holder=self._holder, now=self._clock())
        except DatabaseError as error:
            log.warning("the watch could not release its lease, which will expire: %s", error)

    def _follow(self, clusters: list[Cluster]) -> None:
        """Starts and stops threads, so that each registered cluster has its own, with its current access."""
        wanted = {
            cluster.pk: (
                *(cluster.name, stored(cluster, "kubeconfig"), cluster.context),
                *(str(cluster.in_cluster), str(cluster.action_lease)),
            )
            for cluster in clusters
        }
        for key, running in list(self._threads.items()):
            if wanted.get(key[0]) != running.access:
                running.stop.set()
                del self._threads[key]
        for cluster, (name, follower) in itertools.product(clusters, FOLLOWERS.items()):
            if name == lease_watch.NAME and not cluster.action_lease:
                continue
            if name == PODS and not self._has_listed_nodes(cluster):
                continue  # its lists are longer, and would delay the nodes
            found = self._threads.get((cluster.pk, name))
            if found is None or not found.thread.is_alive():
                stop = threading.Event()
                one = follower(cluster, clock=self._clock, stop=stop)
                thread = threading.Thread(
                    target=_run, args=(one, cluster.name), name=f"watch-{name}-{cluster.name}", daemon=True
                )
                self._threads[cluster.pk, name] = _Running(wanted[cluster.pk], stop, thread, one)
                thread.start()

    def _has_listed_nodes(self, cluster: Cluster) -> bool:
        """Returns whether the first list of the cluster's nodes is over, or failed."""
        nodes = self._threads.get((cluster.pk, NODES))
        return nodes is not None and isinstance(nodes.follower, ClusterWatch) and nodes.follower.tried


class ClusterWatch:
    """Lists and watches the nodes of one cluster."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], datetime], stop: threading.Event) -> None:
        self._cluster = cluster
        self._clock = clock
        self._stop = stop
        self._noted_at = clock()
        self._conditions = sources.ConditionFeed(cluster)
        self.tried = False  # the first list is over, or failed

    def run(self) -> None:
        """Lists and watches until stopped. Errors are stored for display; retries use a back-off."""
        failures = 0
        version = ""
        pace = watch_pace.Pace()
        while not self._stop.is_set():
            try:
                close_old_connections()
                if not version:
                    version = self.list()
                self.tried = True
                version = pace.stream(self.stream, version)
                failures = 0
            except port.Expired as expired:
                version = ""
                is_failure = pace.is_failure()
                if is_failure or isinstance(expired, port.BookmarksRefused):
                    log.warning("cluster %s: %s", self._cluster.name, expired)
                if is_failure:
                    failures += 1
                    self._note(kube_reasons.of(expired))
            except port.KubeError as error:
                log.warning("cluster %s: %s", self._cluster.name, error)
                failures += 1
                version = ""
                self._note(kube_reasons.of(error))
            except DatabaseError as error:
                log.warning("cluster %s: the database does not answer: %s", self._cluster.name, error)
                failures += 1
                version = ""
            except Exception as error:  # whatever one cluster shows, its watch goes on
                log.exception("cluster %s: the watch failed", self._cluster.name)
                failures += 1
                version = ""
                self._note(reasons.of("watch_failed", error=storable_values.error_text(error)))
            self.tried = True
            if failures:
                self._stop.wait(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1])

    def list(self) -> str:
        """Synchronizes the rows of all nodes; returns the resource version to watch from."""
        kube = queries.connect(self._cluster)
        listed = kube.list_nodes()
        server_version = kube.version()
        # One transaction: if the engine cannot be woken, the rows stay as they were, and the next list wakes it.
        with transaction.atomic(), ledger.last():
            changes = node_rows.sync_list(self._cluster, listed.items, now=self._clock())
            self._handle(changes)
        # Not above: an enrolment locks the cluster's row before it inserts a node, so each would wait for the other.
        services.note_watch(self._cluster, now=self._clock(), version=server_version)
        self._conditions.feed(listed.items, now=self._clock())
        return listed.resource_version

    def stream(self, version: str) -> str:
        """Follows changes for STREAM_SECONDS; returns the resource version to continue from."""
        kube = queries.connect(self._cluster)
        for events in event_batches.batches(kube.watch_nodes(version, timeout=STREAM_SECONDS)):
            if self._stop.is_set():
                break
            if self._clock() - self._noted_at > NOTE_INTERVAL:
                self._noted_at = self._clock()
                services.note_watch(self._cluster, now=self._noted_at)
            with transaction.atomic(), ledger.last():
                changes = node_rows.sync_events(self._cluster, events, now=self._clock())
                # A deleted node may be about to come back. A waiting rescue checks it when it is due.
                self._handle([change for change in changes if change.node.in_cluster])
            shown = [event.node for event in events if event.node is not None and event.kind != "DELETED"]
            self._conditions.feed(shown, now=self._clock())
            version = next((event.resource_version for event in reversed(events) if event.resource_version), version)
        services.note_watch(self._cluster, now=self._clock())
        return version

    def _handle(self, changes: Sequence[node_rows.ChangedNode]) -> None:
        """Wakes the engine for the nodes that a rescue, marks or open incidents may be waiting for."""
        for change in changes:
            change.node.cluster = self._cluster
        rescue.nudge_changed(changes, now=self._clock())
        incidents.redecide_nodes([change.node for change in changes if change.new], now=self._clock())

    def _note(self, error: reasons.Reason) -> None:
        try:
            services.note_watch(self._cluster, now=self._clock(), error=error)
        except DatabaseError as failure:
            log.warning("cluster %s: %s", self._cluster.name, failure)


def _run(follower: "Follower", cluster: str) -> None:
    """Runs in a thread of its own, whose log lines carry the cluster's name."""
    log_context.begin(cluster=cluster)
    follower.run()


@dataclass(frozen=True, slots=True)
class _Running:
    """The thread of one follower, and what it was started with."""

    access: tuple[str, ...]
    stop: threading.Event
    thread: threading.Thread
    follower: "Follower"


NODES, PODS = "nodes", "pods"
Follower = ClusterWatch | pod_watch.PodWatch | kube_event_watch.KubeEventWatch | lease_watch.LeaseWatch
FOLLOWERS: Final[Mapping[str, type[Follower]]] = {
    lease_watch.NAME: lease_watch.LeaseWatch,
    NODES: ClusterWatch,
    PODS: pod_watch.PodWatch,
    "events": kube_event_watch.KubeEventWatch,
}
