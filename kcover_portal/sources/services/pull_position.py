"""Up to where a source was read."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from kcover_portal.sources.models import Source

Clock: TypeAlias = Callable[[], datetime]


def store(source: Source, cursor: Mapping[str, Any]) -> None:
    """Stores the position, in the transaction that stores what was read up to it."""
    source.cursor = dict(cursor)
    Source.objects.filter(pk=source.pk).update(cursor=source.cursor)
