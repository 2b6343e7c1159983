"""Leader election between portals: of several installations that manage a cluster, one acts, the others run in shadow.

Processes of one portal share its database, whose leases and tokens already prevent double actions. This is for portals
with databases of their own: a second release, or a restored copy that runs beside the original. The protocol is that
of Kubernetes' own controllers, on the Lease ``kcover-lease/kcover-portal`` of the cluster, with kcover's times.
"""

import logging
import socket
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from kcover import actors, audit
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.kube import port, rights
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

LEASE: Final = "kcover-portal"
LEASE_SECONDS: Final = 15  # without a renewal, others may take the Lease
ACT_SECONDS: Final = 10.0  # after a renewal began, calls may begin
# A new holder waits this long before it acts. The last write of the previous holder begins at most ACT_SECONDS and
# ``nodes.WRITE_WITHIN_SECONDS`` after its last renewal, and takes at most a minute and the time of its connection.
GRACE_SECONDS: Final = 80.0
CLOCK_SKEW_SECONDS: Final = 5.0  # at most, between the pods of one portal
MAX_HOLDER_CHARACTERS: Final = 253


class Election:
    """The part of one process in the election of one cluster. It is not shared by threads.

    ``monotonic``: seconds that no change of the clock moves. Another holder's Lease has expired if it was seen without
    a change for its whole time by this clock, because the clocks of two machines may differ.
    """

    def __init__(
        self, cluster: Cluster, *, clock: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._cluster = cluster
        self._clock, self._monotonic = clock, monotonic
        self._seen: tuple[str, float] = ("", 0.0)  # the version of another holder's Lease, and since when
        self._acts_from: float | None = None  # while this process holds the Lease

    def take_part(self) -> None:
        """Renews the Lease, or takes it if it is free. Does nothing in the modes paused and shadow.

        Raises KubeError. Then, and if this does not run, the portal stops acting after ACT_SECONDS by itself.
        """
        row = Cluster.objects.filter(pk=self._cluster.pk).first()
        if row is None or not row.action_lease:
            return
        if not queries.may_lead(row):
            self.leave()
            return
        began = self._clock(), self._monotonic()
        found = queries.connect(row).lease_holder(rights.LEASE_NAMESPACE, LEASE)
        if found is not None and found.holder == self.identity:
            self._claim(row, found, began=began)
        elif found is None or self._is_free(found):
            self._acts_from = None
            self._claim(row, found, began=began)
            log.info("cluster %s: this portal holds the Lease, and acts in %.0f s", row.name, GRACE_SECONDS)
        else:
            self._note_other(row, found)

    def leave(self) -> None:
        """Stops acting, then releases the Lease if this process holds it. Raises KubeError."""
        if self._acts_from is None:
            return
        self._acts_from = None
        self._note(self._cluster, before=self.identity, holder="", acts_until=None)
        kube = queries.connect(self._cluster)
        found = kube.lease_holder(rights.LEASE_NAMESPACE, LEASE)
        if found is not None and found.holder == self.identity:
            kube.claim_lease(self._as(found, holder="", at=self._clock()))

    def _claim(self, row: Cluster, found: port.LeaseHolder | None, *, began: tuple[datetime, float]) -> None:
        at, monotonic = began
        try:
            queries.connect(row).claim_lease(self._as(found, holder=self.identity, at=at))
        except port.Conflict:  # another one was faster
            self._acts_from = None
            raise
        if self._acts_from is None:
            self._acts_from = monotonic + GRACE_SECONDS
        acts = monotonic >= self._acts_from
        until = at + timedelta(seconds=ACT_SECONDS) if acts else None
        with transaction.atomic():
            self._note(row, before=row.lease_holder, holder=self.identity, acts_until=until)
            if acts and self._has_lapsed(row):
                cluster_settings.note_change(row)  # a fault may have been decided in shadow meanwhile

    def _has_lapsed(self, row: Cluster) -> bool:
        """Returns whether another process of this portal may have seen the time to act end before this renewal."""
        skewed = self._clock() + timedelta(seconds=CLOCK_SKEW_SECONDS)
        return row.acts_until is None or row.acts_until <= skewed

    def _as(self, found: port.LeaseHolder | None, *, holder: str, at: datetime) -> port.LeaseClaim:
        taken = found is None or found.holder != holder
        return port.LeaseClaim(
            name=LEASE,
            namespace=rights.LEASE_NAMESPACE,
            holder=holder,
            seconds=LEASE_SECONDS,
            transitions=found.transitions + (taken and bool(holder)) if found is not None else 0,
            acquired=at if taken and holder else None,
            at=at,
            version=found.version if found is not None else "",
        )

    def _is_free(self, found: port.LeaseHolder) -> bool:
        if not found.holder:
            return True
        now = self._monotonic()
        if found.version != self._seen[0]:
            self._seen = found.version, now
        return now - self._seen[1] >= max(found.seconds, LEASE_SECONDS)

    def _note_other(self, row: Cluster, found: port.LeaseHolder) -> None:
        if self._acts_from is not None:
            log.warning("cluster %s: %s has taken the Lease; this portal runs in shadow", row.name, found.holder)
        self._acts_from = None
        holder = found.holder[:MAX_HOLDER_CHARACTERS]
        if row.lease_holder != holder:
            self._note(row, before=row.lease_holder, holder=holder)

    def _note(self, row: Cluster, *, before: str, holder: str, **columns: datetime | None) -> None:
        """Stores who holds the Lease, with other columns; a new holder is an entry of the audit log."""
        with transaction.atomic():
            Cluster.objects.filter(pk=row.pk).update(lease_holder=holder, **columns)
            if holder != before:
                moved = audit.ActionLeaseMoved(
                    cluster=row.name, before=before, holder=holder, own=holder == self.identity
                )
                ledger.record(row.name, moved, actor=actors.SYSTEM, now=self._clock())
