"""At most one restart of a job within a window (kcover's rule), over all rescues and orders, kept in the database."""

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F

from kcover import reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue.models import JobRestart, Rescue

WINDOW = timedelta(seconds=30)
FORGET_AFTER = timedelta(days=30)


def claim(
    cluster: Cluster,
    *,
    namespace: str,
    job: str,
    because: reasons.Reason,
    rescue: Rescue | None = None,
    now: datetime,
) -> bool:
    """Claims the job's only restart in this window, as part of the caller's transaction. False: it was restarted."""
    where = {"cluster": cluster, "namespace": namespace, "job": job}
    what = {"at": now, "rescue": rescue, "because": because.to_json()}
    JobRestart.objects.filter(at__lt=now - FORGET_AFTER).delete()
    if JobRestart.objects.filter(**where, at__lte=now - WINDOW).update(count=F("count") + 1, **what):
        return True
    if JobRestart.objects.filter(**where).exists():
        return False
    try:
        with transaction.atomic():
            JobRestart.objects.create(**where, **what)
    except IntegrityError:  # another took it at the same moment
        return False
    return True
