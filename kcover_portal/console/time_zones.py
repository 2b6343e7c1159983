"""The time zones that people choose from."""

import functools
import zoneinfo
from typing import Final

# The areas of the time zone database. Names outside of them are older ones, or no places (``localtime``), and browsers
# do not know all of these.
AREAS: Final = frozenset(
    ("Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")
)


@functools.cache
def offered() -> frozenset[str]:
    """Places and UTC."""
    places = {zone for zone in zoneinfo.available_timezones() if zone.partition("/")[0] in AREAS and "/" in zone}
    return frozenset(places | {"UTC"})
