"""The part of the leading watch in the election between portals (``fleet.services.action_lease``), for one cluster."""

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final

from django.db import close_old_connections
from django.db.utils import Error as DatabaseError

from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import action_lease
from kcover_portal.kube import port

log = logging.getLogger(__name__)

NAME: Final = "lease"
ROUND_SECONDS: Final = 2.0


class LeaseWatch:
    """Takes part until it is stopped, then releases the Lease."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], datetime], stop: threading.Event) -> None:
        self._name = cluster.name
        self._stop = stop
        self._election = action_lease.Election(cluster, clock=clock)

    def run(self) -> None:
        """Tries again after every error: without a renewal the portal stops acting by itself."""
        while not self._stop.is_set():
            self._try(self._election.take_part)
            self._stop.wait(ROUND_SECONDS)
        self._try(self._election.leave)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            close_old_connections()
            act()
        except (port.KubeError, DatabaseError) as error:
            log.warning("cluster %s: the Lease could not be renewed or read: %s", self._name, error)
        except Exception:  # whatever one cluster shows, its part goes on
            log.exception("cluster %s: the election failed", self._name)
