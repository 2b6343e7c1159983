"""Turns at a cluster: periodic work that one worker at a time does there."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.utils import timezone

from kcover_portal.config import log_context
from kcover_portal.fleet.models import Cluster
from kcover_portal.runtime.services import leases


@contextmanager
def turn(what: str, cluster_id: int, *, ttl: timedelta) -> Iterator[Cluster | None]:
    """Yields the cluster for a turn of ``what``; None while another worker has it, or if the cluster is gone.

    ``ttl``: longer than the work may take. Log lines of the turn carry the name of the cluster. A cluster that hangs
    blocks only the one thread that has its turn.
    """
    with leases.leading(f"{what} {cluster_id}", ttl=ttl, clock=timezone.now) as leads:
        cluster = Cluster.objects.filter(pk=cluster_id).first() if leads else None
        with log_context.bound(**({"cluster": cluster.name} if cluster is not None else {})):
            yield cluster
