"""The time zones that people choose from, and the one in which a person reads and enters times."""

import functools
import zoneinfo
from typing import Final

from kcover_portal.console.access import Request

COOKIE: Final = "kcover_zone"  # the zone of the browser, which a script stores (times.js)

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


def of(request: Request) -> zoneinfo.ZoneInfo:
    """The zone that the person chose, else the browser's; UTC while that is unknown."""
    browser = request.COOKIES.get(COOKIE, "")
    return zoneinfo.ZoneInfo(request.user.zone or (browser if browser in offered() else "UTC"))
