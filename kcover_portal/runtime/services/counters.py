"""Counters that metrics show."""

from collections.abc import Mapping

from django.db import transaction
from django.db.models import F

from kcover_portal.runtime.models import Counter


def add(topic: str, counts: Mapping[str, int]) -> None:
    """Adds to the named counters of a topic. Rows are updated in the order of their names, to avoid deadlocks."""
    wanted = {name: count for name, count in sorted(counts.items()) if count}
    if not wanted:
        return
    with transaction.atomic():
        for name, count in wanted.items():
            row = Counter.objects.filter(topic=topic, name=name)
            if not row.update(count=F("count") + count):
                Counter.objects.get_or_create(topic=topic, name=name)
                row.update(count=F("count") + count)
