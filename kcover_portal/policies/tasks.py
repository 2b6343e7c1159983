"""Celery tasks of policies."""

import logging
from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.services import cluster_turns
from kcover_portal.kube.errors import KubeError
from kcover_portal.lib import doorbell
from kcover_portal.policies import services

log = logging.getLogger(__name__)
READ_EVERY = 15.0  # seconds
READ_LEASE = timedelta(minutes=5)  # longer than a read may take


@shared_task(name="policies.read_objects")
def read_objects() -> None:
    """Wakes a worker for each cluster, to read the policies that it keeps as objects."""
    for cluster in fleet.clusters():
        doorbell.ring("policies.read_objects_of", cluster.pk, expires=READ_EVERY)


@shared_task(name="policies.read_objects_of")
def read_objects_of(cluster_id: int) -> None:
    """Reads those of one cluster, unless a read is under way. A cluster that hangs blocks only one worker thread."""
    with cluster_turns.turn("policy objects", cluster_id, ttl=READ_LEASE) as cluster:
        if cluster is not None:
            try:
                services.read_policy_objects(cluster, now=timezone.now())
            except KubeError as error:
                log.warning("the policy objects of cluster %s cannot be read: %s", cluster.name, error)
