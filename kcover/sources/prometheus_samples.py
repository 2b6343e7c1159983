"""Samples of Prometheus: their values, their times, and whether a query's values are the numbers of Xids."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from kcover import reasons
from kcover.quote import short_repr
from kcover.sources import observation
from kcover.sources.observation import Json, Unreadable

XID_METRIC: Final = "DCGM_FI_DEV_XID_ERRORS"
MAX_SERIES: Final = 20_000  # of one answer, and of those that are gone and kept beside them
MAX_SECONDS: Final = 10**10  # since 1970: in the year 2286; milliseconds are more
_COUNTING: Final = (
    "changes|count|count_over_time|i?delta|deriv|increase|i?rate|resets|sum|sum_over_time|avg|avg_over_time"
)
_COUNTED: Final = re.compile(
    rf"\b(?:{_COUNTING})\s*(?:(?:by|without)\s*\([^()]*\)\s*)?\([^()]*{XID_METRIC}|{XID_METRIC}[^()]*[<>=]\s*bool\b"
)


def shows_xids(query: str) -> bool:
    """Returns whether the values are numbers of Xids: ``changes(...)`` of the metric, and the like, are not."""
    return XID_METRIC in query and _COUNTED.search(query) is None


def newest_moment(body: object, *, now: datetime) -> datetime | None:
    """The latest of the answer's values, which are Unix times in seconds; None if it has no series. Raises Unreadable.

    One series whose value is not a time invalidates the answer.
    """
    found: list[datetime] = []
    for index, item in enumerate(observation.query_result(body, "vector", code="prometheus_result", most=MAX_SERIES)):
        path = f"result/{index}"
        if not isinstance(item, Mapping):
            raise Unreadable(path, reasons.of("source_not_object", value=short_repr(item)))
        value, _ = sample(item, now=now)
        if not 0 < value < MAX_SECONDS:  # also refuses NaN
            raise Unreadable(f"{path}/value/1", reasons.of("source_time_invalid", value=short_repr(item.get("value"))))
        at = datetime.fromtimestamp(value, tz=UTC)
        found.append(observation.not_ahead(at, f"{path}/value/1", now=now))
    return max(found, default=None)


def sample(item: Json, *, now: datetime) -> tuple[float, datetime]:
    """The value and its time, which Prometheus writes as ``[1700000000.123, "79"]``."""
    pair = item.get("value")
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[1], str):
        raise Unreadable("value", reasons.of("prometheus_value", value=short_repr(pair)))
    stamp = pair[0]
    if isinstance(stamp, bool) or not isinstance(stamp, int | float) or not 0 <= stamp < MAX_SECONDS:
        raise Unreadable("value/0", reasons.of("source_time_invalid", value=short_repr(stamp)))
    try:
        value = float(pair[1][:100])
    except ValueError as error:
        raise Unreadable("value/1", reasons.of("prometheus_value", value=short_repr(pair))) from error
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=stamp)
    return value, observation.not_ahead(at, "value/0", now=now)
