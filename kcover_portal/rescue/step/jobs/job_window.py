"""At most one restart of a job within a window (kcover's rule), over all rescues and orders, kept in the database."""

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet

from kcover import reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue.models import JobRestart, Rescue
from kcover_portal.runtime.services import retention
from kcover_portal.workloads.training_jobs import Job

WINDOW = timedelta(seconds=30)


def restarts_of(cluster: Cluster, *, namespace: str, kind: str, name: str) -> QuerySet[JobRestart]:
    """The restart of the job with this kind and name, or the one of this name that was recorded without a kind."""
    return JobRestart.objects.filter(cluster=cluster, namespace=namespace, kind__in=(kind, ""), job=name)


def claim(cluster: Cluster, job: Job, *, because: reasons.Reason, rescue: Rescue | None = None, now: datetime) -> bool:
    """Claims the job's only restart in this window, as part of the caller's transaction. False: it was restarted."""
    known = restarts_of(cluster, namespace=job.namespace, kind=job.kind, name=job.name)
    what = {"kind": job.kind, "at": now, "rescue": rescue, "because": because.to_json()}
    JobRestart.objects.filter(at__lt=retention.before(JobRestart, now=now)).delete()
    if known.filter(at__gt=now - WINDOW).exists():
        return False
    try:
        with transaction.atomic():
            kind = job.kind if known.filter(kind=job.kind).exists() else ""
            rows = known.filter(kind=kind, at__lte=now - WINDOW)
            if not rows.update(count=F("count") + 1, **what):
                JobRestart.objects.create(cluster=cluster, namespace=job.namespace, job=job.name, **what)
    except IntegrityError:  # another took it at the same moment
        return False
    return True
