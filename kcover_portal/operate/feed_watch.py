"""The loop of a watch that feeds a source: it follows one kind of objects of a cluster while the source is on."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from django.db import close_old_connections
from django.db.utils import Error as DatabaseError

from kcover import reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.operate import watch_pace

log = logging.getLogger(__name__)

OFF_SECONDS: Final = 5.0  # between looks at a source that is switched off
BACKOFF_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 60.0)


class Feed(Protocol):
    """A source that a watch feeds."""

    def is_on(self, *, now: datetime) -> bool:
        """Returns whether the source is switched on."""

    def note(self, problem: reasons.Reason | None, *, now: datetime) -> None:
        """Stores why the objects cannot be watched; None once they can."""


class FeedWatch(ABC):
    """Follows objects of one cluster. ``WHAT`` names them in logs."""

    WHAT = ""

    def __init__(self, cluster: Cluster, feed: Feed, *, clock: Callable[[], datetime], stop: threading.Event) -> None:
        self._cluster, self._source_feed, self._clock, self._stop = cluster, feed, clock, stop

    @abstractmethod
    def list(self) -> str:
        """Reads the objects; returns the resource version to watch from."""

    @abstractmethod
    def stream(self, version: str) -> str:
        """Follows changes for a while; returns the resource version to continue from."""

    def run(self) -> None:
        """Watches until stopped. Errors are stored on the source; retries use a back-off."""
        failures = 0
        version = ""
        pace = watch_pace.Pace()
        while not self._stop.is_set():
            try:
                close_old_connections()
                if not self._source_feed.is_on(now=self._clock()):
                    version = ""
                    self._stop.wait(OFF_SECONDS)
                    continue
                version = pace.stream(self.stream, version or self.list())
                self._source_feed.note(None, now=self._clock())
                failures = 0
            except port.Expired as expired:
                version = ""
                if pace.is_failure():
                    failures += 1
                    self._source_feed.note(kube_reasons.of(expired), now=self._clock())
            except (port.KubeError, DatabaseError) as error:
                log.warning("cluster %s: %s are not watched: %s", self._cluster.name, self.WHAT, error)
                failures, version = failures + 1, ""
                if isinstance(error, port.KubeError):
                    self._source_feed.note(kube_reasons.of(error), now=self._clock())
            except Exception:  # whatever one cluster shows, its watch goes on
                log.exception("cluster %s: the watch of %s failed", self._cluster.name, self.WHAT)
                failures, version = failures + 1, ""
            if failures:
                self._stop.wait(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1])
