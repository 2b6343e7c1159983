"""Remembered hashes: detect that a value has changed since any process last read it."""

from datetime import datetime

from kcover_portal.runtime.models import RememberedHash


def remember_hash(topic: str, key: str, value: str, *, now: datetime) -> bool:
    """Stores the hash. Returns whether it differs from the stored one. Of several concurrent callers, one gets True."""
    rows = RememberedHash.objects.filter(topic=topic, key=key)
    if rows.exclude(value=value).update(value=value, at=now):
        return True
    _, created = RememberedHash.objects.get_or_create(topic=topic, key=key, defaults={"value": value, "at": now})
    return created
