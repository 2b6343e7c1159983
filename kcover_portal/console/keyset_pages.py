"""Pages of a log by key: they keep their entries while new ones arrive, and cost the same however far back they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from kcover_portal.console.list_query import KEY, ListResult

TIME = "at"  # the column by which a log is sorted


@dataclass(frozen=True, slots=True)
class KeysetPage:
    """Entries of a log, the newest first unless ``oldest_first``.

    ``begun``: this is not the first page. ``edge``: the key of the last entry if more follow.
    """

    rows: Sequence[Any]
    oldest_first: bool
    begun: bool
    edge: int | None

    @property
    def live(self) -> bool:
        """Returns whether new entries belong on this page."""
        return not self.begun and not self.oldest_first


def page(found: ListResult, rows: QuerySet[Any], *, size: int) -> KeysetPage:
    """The page of the address: the entries older than the key ``before``, or newer than ``after`` if sorted upwards."""
    up = found.sort == TIME
    edge = found.parameters.get("after" if up else "before", "")
    begun = KEY.fullmatch(edge) is not None
    if begun:
        rows = rows.filter(**{"pk__gt" if up else "pk__lt": int(edge)})
    entries = list(rows.order_by("pk" if up else "-pk")[: size + 1])
    more = len(entries) > size
    return KeysetPage(entries[:size], up, begun, entries[size - 1].pk if more else None)
