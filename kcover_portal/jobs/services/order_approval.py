"""Orders by hand that wait for another person, where the cluster's ``hand_approval`` is ``always``.

The order of an approver who is not its requester approves it: that order runs, and the one that waited ends.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs import queries
from kcover_portal.jobs.models import JobOrder
from kcover_portal.workloads import training_jobs

VALID_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalVerdict:
    """What becomes of an order: it waits for another person, is refused, or runs.

    ``approves``: the order of another person that it approves.
    """

    waits: bool = False
    refusal: reasons.Reason | None = None
    approves: JobOrder | None = None


def standing(
    cluster: Cluster,
    job: training_jobs.Job,
    action: str,
    *,
    people: Collection[str],
    may_approve: bool,
    now: datetime,
) -> ApprovalVerdict:
    """Returns what becomes of an order. ``people``: everybody who counts as the person who gives it.

    Two people must agree: a requester and an approver, or the portal, which asks, and an approver.
    """
    if cluster.hand_approval != Cluster.HandApproval.ALWAYS:
        return ApprovalVerdict()
    about = {"namespace": job.namespace, "kind": job.kind, "name": job.name, "action": action}
    held = queries.left_to_people().filter(cluster=cluster, **about)
    if may_approve and held.exclude(cause=JobOrder.Cause.PERSON).exists():
        return ApprovalVerdict()
    asked = waiting(cluster).filter(**about, requested_at__gt=now - VALID_FOR).first()
    if asked is None:
        return ApprovalVerdict(waits=True)
    if may_approve and not is_own(asked, people):
        if accounts.has_lost(asked.requested_by, Verb.REPAIR, cluster):
            return ApprovalVerdict(refusal=reasons.of("vote_of_gone", by=asked.requested_by))
        return ApprovalVerdict(approves=asked)
    return ApprovalVerdict(refusal=reasons.of("job_order_waits", order=asked.pk, by=asked.requested_by))


def waiting(cluster: Cluster) -> QuerySet[JobOrder]:
    """Returns the orders of the cluster that wait for another person."""
    return queries.left_to_people().filter(cluster=cluster, awaits_approval=True)


def is_own(asked: JobOrder, people: Collection[str]) -> bool:
    """Returns whether one of these people counts as the requester of the order."""
    return not {asked.requested_by, *asked.requesters}.isdisjoint(people)
