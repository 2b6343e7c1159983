"""Orders by hand that nobody approves: a person takes them back or rejects them, or they expire."""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction

from kcover import reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs.models import JobOrder
from kcover_portal.jobs.services import order_approval, orders

MAX_EXPIRED_ORDERS = 100
ACTOR = "system"


def decline(
    cluster: Cluster,
    *,
    kind: str,
    namespace: str,
    name: str,
    actor: str,
    people: Collection[str],
    reason: str,
    may_approve: bool,
    now: datetime,
) -> JobOrder:
    """Ends the order about the job that waits for another person: a requester takes it back, an approver rejects it.

    Raises JobUnknown for an unknown kind, OrderRefused if no order waits or it is another person's.
    """
    with transaction.atomic():
        about = {"kind": orders.kind_named(kind), "namespace": namespace, "name": name}
        asked = order_approval.waiting(cluster).select_for_update(of=("self",)).filter(**about).first()
        if asked is None:
            raise orders.OrderRefused(reasons.of("job_no_order_waits"))
        if not may_approve and not order_approval.is_own(asked, people):
            raise orders.OrderRefused(reasons.of("job_order_of_another", order=asked.pk, by=asked.requested_by))
        because = reasons.with_why("job_order_declined", reason, by=actor)
        orders.settle(asked, JobOrder.State.FAILED, because, actor=actor, now=now)
    asked.refresh_from_db()
    return asked


def expire(cluster: Cluster, *, now: datetime) -> None:
    """Ends orders that nobody approved in time."""
    old = order_approval.waiting(cluster).filter(requested_at__lte=now - order_approval.VALID_FOR).order_by("pk")
    for order in old.select_related("cluster")[:MAX_EXPIRED_ORDERS]:
        with transaction.atomic():
            because = reasons.of("job_order_expired", span=reasons.span(order_approval.VALID_FOR))
            orders.settle(order, JobOrder.State.FAILED, because, actor=ACTOR, now=now)
