"""Adding to counts that metrics show."""

from collections.abc import Mapping

from django.db import transaction
from django.db.models import F

from kcover_portal.fleet.models import Tally


def add(counts: Mapping[str, int]) -> None:
    """Adds to each named count, in the order of the names: of several processes none waits for another in a circle."""
    wanted = {name: count for name, count in sorted(counts.items()) if count}
    if not wanted:
        return
    with transaction.atomic():
        for name, count in wanted.items():
            row = Tally.objects.filter(name=name)
            if not row.update(count=F("count") + count):
                Tally.objects.get_or_create(name=name)
                row.update(count=F("count") + count)
