"""Delete bundles that are too old or too many. Their rows stay, so that the hash in the audit log can be explained."""

from collections.abc import Iterable
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Count

from kcover_portal.evidence import queries
from kcover_portal.evidence.models import Bundle, Chunk
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import retention

MAX_BUNDLES_PER_NODE = 16  # with content; a node that breaks often takes no room from others
FULL_SHARE = 0.9  # of the room for all; as much stays when it was exceeded, so that not every bundle deletes others


def prune(*, now: datetime) -> int:
    """Deletes the content of bundles beyond the bounds, the oldest first; returns the number of bundles."""
    gone = [row.pk for row in queries.not_uploaded(now=now)]
    Bundle.objects.filter(pk__in=gone, state=Bundle.State.REQUESTED).update(state=Bundle.State.MISSED)
    old = queries.with_content().filter(requested_at__lt=retention.before(Bundle, now=now))
    removed = _delete(Bundle.objects.filter(pk__in=gone, received__gt=0)) + _delete(old)
    return removed + _limit_nodes() + _limit_bytes(settings.KCOVER_EVIDENCE_MIB << 20)


def _limit_nodes() -> int:
    kept = queries.with_content().exclude(state=Bundle.State.REQUESTED).order_by()
    crowded = kept.values("node").annotate(count=Count("pk")).filter(count__gt=MAX_BUNDLES_PER_NODE)
    removed = 0
    for node in list(crowded.values_list("node", flat=True)):
        removed += _delete(kept.filter(node=node).order_by("-requested_at", "-pk")[MAX_BUNDLES_PER_NODE:])
    return removed


def _limit_bytes(limit: int) -> int:
    excess = queries.stored_bytes()
    if excess <= limit:
        return 0
    excess -= int(limit * FULL_SHARE)
    oldest = []
    for row in queries.with_content().exclude(state=Bundle.State.REQUESTED).order_by("requested_at", "pk").iterator():
        if excess <= 0:
            break
        oldest.append(row)
        excess -= row.received
    return _delete(oldest)


def _delete(rows: Iterable[Bundle]) -> int:
    """Deletes the content of bundles, each in a transaction of its own."""
    number = 0
    for row in list(rows):
        with transaction.atomic():
            locked = Bundle.objects.select_for_update(no_key=True).get(pk=row.pk)
            never_arrived = locked.state in (Bundle.State.REQUESTED, Bundle.State.MISSED)
            state = Bundle.State.MISSED if never_arrived else Bundle.State.DELETED
            Chunk.objects.filter(bundle=locked).delete()
            Bundle.objects.filter(pk=row.pk).update(received=0, state=state)
            doorbell.publish("rescue", row.rescue)
        number += 1
    return number
