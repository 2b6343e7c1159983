"""Celery tasks of policies."""

import logging

from celery import shared_task
from django.utils import timezone

from kcover_portal.fleet import queries as fleet
from kcover_portal.kube.errors import KubeError
from kcover_portal.policies import services

log = logging.getLogger(__name__)


@shared_task(name="policies.read_objects")
def read_objects() -> None:
    """Reads the policies that clusters keep as objects. A cluster that does not answer stops no other."""
    for cluster in fleet.clusters():
        try:
            services.read_policy_objects(cluster, now=timezone.now())
        except KubeError as error:
            log.warning("the policy objects of cluster %s cannot be read: %s", cluster.name, error)
