"""Keeps when other systems and people cordoned nodes (``kubectl cordon``), from looks at the watched nodes.

The watch has no part in this, so a start and an end are as exact as the pause between two looks.
"""

from datetime import datetime

from django.db import transaction

from kcover.nodes import marks
from kcover_portal.fleet.models import ForeignCordon, Node
from kcover_portal.runtime.services import retention


def look(*, now: datetime) -> None:
    """Records cordons that began or ended since the last look. To repeat it changes nothing."""
    with transaction.atomic():
        known = dict(ForeignCordon.objects.filter(ended_at=None).select_for_update().values_list("node", "pk"))
        here = Node.objects.filter(unschedulable=True, in_cluster=True, gone_at=None).values_list("pk", "marks")
        cordoned = {pk for pk, content in here if not _by_portal(content)}
        ended = [pk for node, pk in known.items() if node not in cordoned]
        ForeignCordon.objects.filter(pk__in=ended).update(ended_at=now)
        begun = sorted(cordoned - known.keys())
        ForeignCordon.objects.bulk_create([ForeignCordon(node_id=node, began_at=now) for node in begun])


def prune(*, now: datetime) -> int:
    """Deletes old cordons; returns their number."""
    return ForeignCordon.objects.filter(ended_at__lt=retention.before(ForeignCordon, now=now)).delete()[0]


def _by_portal(content: dict[str, object]) -> bool:
    found = marks.read(content)
    return found is not None and found.cordon
