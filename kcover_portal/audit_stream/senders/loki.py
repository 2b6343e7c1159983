"""Records pushed to Loki (``POST /loki/api/v1/push``), a stream for each topic and cluster."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kcover_portal.audit_stream.queries.topics import Record
from kcover_portal.lib import outgoing

PUSH: Final = "/loki/api/v1/push"
JOB: Final = "kcover-portal"  # the label ``job`` of all streams
# Loki refuses lines older than a week (its reject_old_samples_max_age). Older lines get a later time; their JSON has
# their own.
OLDEST: Final = timedelta(days=6)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def document(records: Sequence[Record], lines: Sequence[str], *, now: datetime) -> dict[str, Any]:
    """The body of a push. Times are in nanoseconds, as texts."""
    streams: dict[tuple[str, str], list[list[str]]] = {}
    for record, line in zip(records, lines, strict=True):
        moment = max(record.at, now - OLDEST)
        nanoseconds = (moment - EPOCH) // timedelta(microseconds=1) * 1000
        streams.setdefault((record.topic, record.part), []).append([str(nanoseconds), line])
    return {
        "streams": [
            {"stream": {"job": JOB, "topic": topic, "cluster": part or "-"}, "values": values}
            for (topic, part), values in streams.items()
        ]
    }


def send(
    address: str,
    records: Sequence[Record],
    lines: Sequence[str],
    *,
    headers: dict[str, str],
    seconds: float,
    now: datetime,
) -> outgoing.RawResponse:
    """Pushes a batch once. Raises outgoing.NoResponse."""
    body = document(records, lines, now=now)
    return outgoing.send(f"{address.rstrip('/')}{PUSH}", body, secret="", headers=headers, seconds=seconds)
