"""At most one restart of a job within a window (kcover's rule), over all rescues and orders, kept in the database."""

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue.models import JobRestart, Rescue

WINDOW = timedelta(seconds=30)
FORGOTTEN = timedelta(days=1)


def claim(cluster: Cluster, *, namespace: str, job: str, rescue: Rescue | None, now: datetime) -> bool:
    """Claims the job's only restart in this window, as part of the caller's transaction. False: it was restarted."""
    where = {"cluster": cluster, "namespace": namespace, "job": job}
    JobRestart.objects.filter(at__lt=now - FORGOTTEN).delete()
    if JobRestart.objects.filter(**where, at__lte=now - WINDOW).update(at=now, rescue=rescue):
        return True
    if JobRestart.objects.filter(**where).exists():
        return False
    try:
        with transaction.atomic():
            JobRestart.objects.create(**where, at=now, rescue=rescue)
    except IntegrityError:  # another took it at the same moment
        return False
    return True
