"""Steps that wait until people are told: the app that tells them finds them here, and settles them."""

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from kcover import lifecycle
from kcover_portal import doorbell
from kcover_portal.rescue.models import Rescue, Step

NAME = "notify"


def asking() -> QuerySet[Step]:
    """The steps of open rescues that wait for people to be told, and have no answer, oldest first."""
    rows = Step.objects.filter(name=NAME, rescue__state__in=lifecycle.OPEN_RESCUE, state__in=("running", "waiting"))
    asked = rows.filter(progress__asked_at__isnull=False, progress__told__isnull=True)
    return asked.select_related("rescue__node", "rescue__cluster").order_by("pk")


def told(step_id: int, *, said: str, now: datetime) -> bool:
    """Notes what came of telling people, and lets the rescue go on at once; False where nobody waits for it any more.

    It is the step's own end whether or not the word arrived: ``said`` tells which.
    """
    with transaction.atomic():
        rescue = Rescue.objects.select_for_update(of=("self",)).filter(steps=step_id).first()
        step = asking().filter(pk=step_id).first()
        if rescue is None or step is None:
            return False
        answer = {"said": said[:500], "at": now.isoformat()}
        Step.objects.filter(pk=step_id).update(progress={**step.progress, "told": answer})
        waiting = Rescue.objects.filter(pk=rescue.pk, state=Rescue.State.WAITING)
        if waiting.update(state=Rescue.State.RUNNING, due_at=now, because=""):
            doorbell.ring("rescue.run", rescue.pk)
            doorbell.tell("rescue", rescue.pk, cluster=step.rescue.cluster.name)
    return True
