"""The periodic publication of signed heads, the comparison with the anchor before a worker acts, and verifications."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from celery import shared_task
from celery.signals import worker_init
from django.db import connection
from django.db.utils import InterfaceError, OperationalError, ProgrammingError
from django.utils import timezone

from kcover_portal.anchors import services
from kcover_portal.anchors.services import verifications
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import leases

log = logging.getLogger(__name__)

PUBLISH_EVERY = timedelta(seconds=50)  # shorter than the schedule, so that a late message does not skip a minute
POLL_SECONDS = 1.0


@shared_task(name="anchors.publish")
def publish() -> None:
    """Publishes the signed heads, once a minute among all workers."""
    now = timezone.now()
    if leases.throttle("ledger heads", every=PUBLISH_EVERY, now=now):
        services.publish(now=now)


@shared_task(name="anchors.advance_verification")
def advance_verification(pk: int) -> None:
    """Takes a verification of hash chains one slice further."""
    verifications.advance(pk, clock=timezone.now)


@shared_task(name="anchors.advance_verifications")
def advance_verifications() -> None:
    """Wakes workers for the verifications that wait or lost their worker, and deletes old ones."""
    verifications.prune(now=timezone.now())
    for pk in verifications.due(now=timezone.now()):
        doorbell.ring("anchors.advance_verification", pk)


@worker_init.connect
def compare_before_work(**_signal: object) -> None:
    """Compares the database with the anchor before the worker's first task: a restored database starts paused.

    In a thread of its own, because the embedded worker starts inside of an event loop.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="anchor") as thread:
        thread.submit(_compare).result()


def _compare() -> None:
    """Waits for the database and compares."""
    try:
        while not _compared():
            time.sleep(POLL_SECONDS)
    finally:
        connection.close()


def _compared() -> bool:
    try:
        services.compare(now=timezone.now())
    except (OperationalError, InterfaceError) as error:
        if connection.vendor == "sqlite":
            log.exception("the database cannot be compared with the anchor")
            return True  # "no such table": it is not migrated
        log.warning("the worker waits for the database, to compare it with the anchor: %s", error)
        connection.close()
        return False
    except ProgrammingError:
        log.exception("the database cannot be compared with the anchor; is it migrated?")
    return True
