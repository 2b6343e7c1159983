"""Tasks of the workers about the installation."""

import logging

from celery import shared_task
from django.db import models
from django.utils import timezone

from kcover import actors, audit
from kcover_portal.encryption import KeysUnusable, key_rotation
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import kubeconfig
from kcover_portal.kube import kubeconfig_rules
from kcover_portal.ledger import services as ledger
from kcover_portal.operate import load_samples

log = logging.getLogger(__name__)


@shared_task(name="operate.move_secrets")
def move_secrets() -> None:
    """Encrypts what web stored lately with the engine's key.

    Kubeconfigs are left to ``secrets rotate``, because web and live need second ones first. Those that were pasted into
    a page are encrypted at once: they came when the engine had its key. Each of those is an entry of the audit log, so
    that one which a compromised web planted is seen.
    """
    try:
        done = key_rotation.move_to_engine(key_rotation.models_with_secrets(), leave=_is_left, note=_note)
    except KeysUnusable as error:
        log.warning("secrets stay readable for web: %s", error)
        return
    for unreadable in done.unreadable:
        log.warning("%s", unreadable)
    if done.changed:
        log.info("%d secrets encrypted with the engine's key", done.changed)


@shared_task(name="operate.sample_load")
def sample_load() -> None:
    """Keeps what the portal has to do now."""
    load_samples.take(now=timezone.now())


def _is_left(row: models.Model) -> bool:
    return isinstance(row, Cluster) and not kubeconfig_rules.is_pasted(row.kubeconfig)


def _note(row: models.Model, column: str) -> None:
    if isinstance(row, Cluster) and column == "kubeconfig":
        server = kubeconfig.address_of(row.kubeconfig, context=row.context)
        act = audit.ClusterKubeconfigSealed(cluster=row.name, server=server)
        ledger.record(row.name, act, actor=actors.SYSTEM, now=timezone.now())
