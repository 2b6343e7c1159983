"""Links to the site's dashboards, for example of Grafana, from the template in KCOVER_GRAFANA_URL."""

from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from django.conf import settings

BEFORE: Final = timedelta(minutes=30)
AFTER: Final = timedelta(minutes=30)


def address(cluster: str, node: str, since: datetime, until: datetime) -> str:
    """The dashboard of a node from BEFORE the first moment to AFTER the last one; "" without a template."""
    found: str = settings.KCOVER_GRAFANA_URL
    values = {
        "{cluster}": cluster,
        "{node}": node,
        "{from}": _milliseconds(since - BEFORE),
        "{to}": _milliseconds(until + AFTER),
    }
    for placeholder, value in values.items():
        found = found.replace(placeholder, quote(value, safe=""))
    return found


def _milliseconds(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))
