"""The columns of Events."""

from datetime import datetime
from typing import Any

from simulator.kubeapi.tables.column import Column, at, since

Object = dict[str, Any]


def _last_seen(event: Object, now: datetime) -> str:
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or first
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    return f"{since(last, now)} (x{count} over {since(first, now)})" if count > 1 else since(last, now)


def _involved(event: Object, now: datetime) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_source(event: Object, now: datetime) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


COLUMNS = (
    Column("Last Seen", _last_seen),
    Column("Type", at("type", "")),
    Column("Reason", at("reason", "")),
    Column("Object", _involved),
    Column("Subobject", at("involvedObject.fieldPath", ""), wide=True),
    Column("Source", _event_source, wide=True),
    Column("Message", lambda event, now: str(event.get("message", "")).strip()),
    Column(
        "First Seen",
        lambda event, now: since(event.get("firstTimestamp") or event.get("eventTime"), now),
        wide=True,
    ),
    Column("Count", lambda event, now: event.get("count") or 1, wide=True, kind="integer"),
    Column("Name", at("metadata.name"), wide=True),
)
