"""Steps that wait for a notification: the notify app finds them here and settles them."""

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from kcover import actions, reasons
from kcover.plans import lifecycle
from kcover_portal.lib import doorbell
from kcover_portal.rescue.models import Rescue, Step

NAME = actions.notify.SPEC.name


def waiting_steps() -> QuerySet[Step]:
    """The steps of open rescues that wait for a notification, oldest first."""
    rows = Step.objects.filter(name=NAME, rescue__state__in=lifecycle.OPEN_RESCUE, state__in=("running", "waiting"))
    waiting = rows.filter(progress__requested_at__isnull=False, progress__result__isnull=True)
    return waiting.select_related("rescue__node", "rescue__cluster").order_by("pk")


def settle_step(step_id: int, *, because: reasons.Reason, now: datetime) -> bool:
    """Records the result of a notification and lets the rescue continue.

    Returns False if the step no longer waits for it.

    The step ends whether or not the message was delivered; ``because`` says which.
    """
    with transaction.atomic():
        rescue = Rescue.objects.select_for_update(of=("self",)).filter(steps=step_id).first()
        step = waiting_steps().filter(pk=step_id).first()
        if rescue is None or step is None:
            return False
        result = {"because": because.to_json(), "at": now.isoformat()}
        Step.objects.filter(pk=step_id).update(progress=step.with_progress(result=result))
        waiting = Rescue.objects.filter(pk=rescue.pk, state=Rescue.State.WAITING)
        if waiting.update(state=Rescue.State.RUNNING, due_at=now, because={}):
            doorbell.ring("rescue.run", rescue.pk)
            doorbell.publish("rescue", rescue.pk, cluster=step.rescue.cluster.name)
    return True
