"""Samples of Prometheus: their values, their times, and whether a query's values are the numbers of Xids."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from kcover import reasons
from kcover.sources import observation
from kcover.sources.observation import Json, Unreadable
from kcover.values.quote import short_repr

XID_METRIC: Final = "DCGM_FI_DEV_XID_ERRORS"
MAX_SERIES: Final = 20_000  # of one answer, and of those that are gone and kept beside them
MAX_SECONDS: Final = 10**10  # since 1970: in the year 2286; milliseconds are more
# The functions whose values are values of their series, and the words that join two vectors.
_KEEPING: Final = frozenset(
    {"max", "min", "topk", "bottomk", "last_over_time", "max_over_time", "min_over_time"}
    | {"label_replace", "label_join", "sort", "sort_desc", "and", "or", "unless"}
)
_QUOTED: Final = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|\"[^\"]*\"|'[^']*'")  # matchers, ranges, texts
_GROUPED: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)", re.IGNORECASE)
_CALLED: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)\s*\(")
# What maps a series to its node, as kube_pod_info does: its value is 1.
_JOINED: Final = re.compile(r"\*\s*on\s*\([^()]*\)\s*group_left\s*(?:\([^()]*\))?\s*[A-Za-z0-9_:]*_info\b")
_COMPUTED: Final = re.compile(r"[-+*/%^]|\b(?:bool|offset|atan2)\b")


def shows_xids(query: str) -> bool:
    """Returns whether the values are numbers of Xids: those of ``changes(...)`` or ``count(...)`` are not."""
    bare = _QUOTED.sub(" ", _QUOTED.sub(" ", query))
    bare = _GROUPED.sub(" ", _JOINED.sub(" ", bare))
    if XID_METRIC not in bare:
        return XID_METRIC in query and bare.strip() == ""  # {__name__="..."} alone
    return _COMPUTED.search(bare) is None and all(name.lower() in _KEEPING for name in _CALLED.findall(bare))


def left_out(body: object) -> str:
    """Why the answer may lack series, "" if it has all: some stores of Thanos or VictoriaMetrics did not answer.

    Prometheus' own remarks about the query (``PromQL info: ...``) are no such reason.
    """
    if not isinstance(body, Mapping):
        return ""
    if body.get("isPartial") is True:
        return "isPartial"
    told = body.get("warnings")
    texts = [text for text in told if isinstance(text, str)] if isinstance(told, list) else []
    return next((text for text in texts if not text.startswith("PromQL ")), "")


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
