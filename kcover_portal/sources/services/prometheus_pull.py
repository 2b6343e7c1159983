"""Reads Prometheus: one instant query, compared with the reading before."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from kcover.sources import prometheus, settings
from kcover.sources.observation import MAX_ITEMS, ObservationBatch, Rejected, Unreadable
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import intake, pull_position
from kcover_portal.sources.services.pull_position import Clock
from kcover_portal.sources.services.pull_request import SECONDS, NotRead, ask, headers_of

PATH: Final = "/api/v1/query"
KNOWN_BEFORE: Final = timedelta(hours=1)  # of the first reading


def read(source: Source, *, clock: Clock) -> bool:
    """Reads the series and stores those that have become a fault. Returns False: one reading is all there is.

    A value may be weeks old when the portal asks for the first time. A series that had the same value an hour ago is
    not reported.
    """
    now = clock()
    if "shown" in source.cursor:
        before = prometheus.Before.from_json(source.cursor)
    else:
        before = _read(source, prometheus.Before(), at=now - KNOWN_BEFORE).after
    read = _with_other_jobs(source, _read(source, before, at=now), at=now)
    found, vanished = _without_vanished(source, read, now=now)
    with transaction.atomic():
        intake.take(source, news(source, found.batch), now=now)
        beside = {"rejected": rejected_names(found.batch), "vanished": vanished}
        pull_position.store(source, {**found.after.to_json(), **beside})
    return False


def _without_vanished(
    source: Source, found: prometheus.SeriesAnswer, *, now: datetime
) -> tuple[prometheus.SeriesAnswer, list[str]]:
    """Leaves out the ends of alerts whose series may have vanished with their node; returns their keys, too.

    Such an end counts when the node has been Ready for so long that the series would be there again.
    """
    shown = found.after.shown
    vanished = [key for key in source.cursor.get("vanished", ()) if key not in shown and not _stands(key, shown)]
    if not found.is_whole:
        return found, vanished
    seen = [*found.batch.observations, *(prometheus.passed(key, now=now) for key in vanished)]
    ended = tuple(one for one in seen if one.healthy)
    nodes, _ = intake.nodes_told_of(source.cluster, ObservationBatch(observations=ended))
    until = now - settings.doubt(source.kind, source.settings)
    away = {told for told, node in nodes.items() if not node.ready or (node.ready_since or until) > until}
    left = tuple(one for one in seen if not (one.healthy and one.node in away))
    keys = [one.key.partition("\n")[0] for one in ended if one.node in away]
    return replace(found, batch=replace(found.batch, observations=left)), keys


def _stands(key: str, shown: Iterable[str]) -> bool:
    """Returns whether the check of a series without a device now names a device: the end of one would end both."""
    node, code, device = key.split("\t")[:3]
    return not device and any(other.startswith(f"{node}\t{code}\t") for other in shown)


def news(source: Source, batch: ObservationBatch) -> ObservationBatch:
    """The batch without rejections that were the same the last time: a query gives the same series again."""
    known = source.cursor.get("rejected")
    return batch if rejected_names(batch) != known else ObservationBatch(observations=batch.observations)


def rejected_names(batch: ObservationBatch) -> list[list[str]]:
    return [[one.path, one.reason.code] for one in batch.rejected[:MAX_ITEMS]]


def _read(source: Source, before: prometheus.Before, *, at: datetime) -> prometheus.SeriesAnswer:
    query = source.settings.get("query", prometheus.DEFAULT_QUERY)
    labels = source.settings.get("node_label", prometheus.NODE_LABELS)
    body = ask_for(source, query, at=at)
    return prometheus.read(body, query=query, node_labels=labels, before=before, now=at)


def _with_other_jobs(source: Source, found: prometheus.SeriesAnswer, *, at: datetime) -> prometheus.SeriesAnswer:
    """The answer, and what the default query leaves out."""
    rejected = () if "query" in source.settings else _other_jobs(source, at=at)
    return replace(found, batch=replace(found.batch, rejected=(*found.batch.rejected, *rejected)))


def _other_jobs(source: Source, *, at: datetime) -> tuple[Rejected, ...]:
    """That the server cannot count them keeps no fault from being read."""
    try:
        return prometheus.other_jobs(ask_for(source, prometheus.OTHER_JOBS, at=at))
    except (NotRead, Unreadable):
        return ()


def ask_for(source: Source, query: str, *, at: datetime, seconds: float = SECONDS) -> Any:
    """The decoded answer to an instant query. Raises NotRead and SecretUnreadable."""
    asked = {"query": query, "time": f"{at.timestamp():.3f}"}
    return ask(source.url, PATH, asked, headers=headers_of(source), seconds=seconds)


def seen(source: Source, *, since: timedelta, now: datetime) -> int:
    """The number of series that have become a fault since then."""
    before = _read(source, prometheus.Before(), at=now - since).after
    return len(_read(source, before, at=now).batch.observations)
