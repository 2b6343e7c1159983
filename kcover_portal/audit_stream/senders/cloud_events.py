"""Records as CloudEvents 1.0, a batch in each signed POST (``application/cloudevents-batch+json``)."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from django.conf import settings

from kcover_portal.audit_stream.queries.topics import Record
from kcover_portal.lib import outgoing

CONTENT_TYPE: Final = "application/cloudevents-batch+json"
TYPE: Final = "io.kcover"  # the prefix of all types
SOURCE: Final = "kcover-portal"  # without KCOVER_PUBLIC_URL


def event(record: Record) -> dict[str, Any]:
    """One event. ``source`` + ``id`` are unique; ``subject`` is the node, if the record has one."""
    line = record.line()
    source = f"{settings.KCOVER_PUBLIC_URL or SOURCE}/clusters/{quote(record.part, safe='')}"
    made = {
        "specversion": "1.0",
        "id": line["id"],
        "source": source,
        "type": f"{TYPE}.{record.topic}.{line.get('verb') or line['state']}",
        "time": record.at.isoformat(),
        "datacontenttype": "application/json",
        "data": line,
    }
    return made | ({"subject": line["node"]} if line.get("node") else {})


def send(url: str, records: Sequence[Record], *, secret: str, seconds: float) -> outgoing.RawResponse:
    """Sends a batch once. Raises outgoing.NoResponse."""
    return outgoing.send(
        url, [event(record) for record in records], secret=secret, seconds=seconds, content_type=CONTENT_TYPE
    )
