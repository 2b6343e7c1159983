"""On-call services: one event for each alert, under a name that makes repetitions of it one page, and one for its end.

Source: PagerDuty, "Events API v2" (``POST /v2/enqueue``). It answers before it has worked on the event: 202 says that
the event is well-formed and its key well-shaped, and no more.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from kcover import paging
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders import webhook
from kcover_portal.notify.senders.message import Event

MOST_BYTES: Final = 4096  # of an answer
CLIENT: Final = "kcover portal"
SUMMARY: Final = 1024  # characters, as PagerDuty counts them
SEVERITIES: Final = {"info": "info", "warning": "warning", "degraded": "error", "fatal": "critical"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What one service needs: where it is by default, the path that an address may leave out, and how a key looks."""

    url: str
    path: str
    key: re.Pattern[str]
    key_looks: str
    call: Callable[[Channel, Event], tuple[str, dict[str, Any], Mapping[str, str]]]


def send(channel: Channel, event: Event, *, key: str) -> str:
    """Posts the event. Raises NotTaken, with the service's own reason and never with the key."""
    url, body, headers = SERVICES[channel.kind].call(channel, event)

    def why(data: bytes) -> str:
        return _why(data).replace(channel.secret or "\0", "…")

    reply = webhook.post(url, body, secret="", key=key, most=MOST_BYTES, headers=headers, why=why)
    return f"answers {reply.status}"


def address(kind: str, url: str) -> str:
    """Where events go: the channel's address, which may leave out the path that is the same everywhere."""
    service = SERVICES[kind]
    base = url.rstrip("/")
    return base if base.endswith(service.path) else base + service.path


def page_name(channel: Channel, page: str) -> str:
    """What the service tells repetitions by. A service may get events of several portals, so it says whose it is."""
    return f"kcover-{channel.created_at:%Y%m%dT%H%M%S}-{page}"


def _why(data: bytes) -> str:
    """The service's reason, in one line."""
    try:
        said = json.loads(data[:MOST_BYTES])
    except (ValueError, RecursionError):
        return ""
    if not isinstance(said, dict):
        return ""
    errors = said.get("errors")
    words = errors if isinstance(errors, list) and errors else [said.get("message") or ""]
    text = " ".join("; ".join(map(str, words)).split())
    return "".join(char for char in text if char.isprintable())[:200]


def _pagerduty(channel: Channel, event: Event) -> tuple[str, dict[str, Any], Mapping[str, str]]:
    body: dict[str, Any] = {
        "routing_key": channel.secret,
        "event_action": event.action,
        "dedup_key": page_name(channel, event.page),
    }
    if event.action == paging.TRIGGER:
        host = urlsplit(event.link).hostname
        payload: dict[str, Any] = {
            "summary": _short(event.summary, SUMMARY),
            "source": event.source or host or CLIENT,
            "severity": SEVERITIES[event.severity],
            "component": event.component,
            "group": event.cluster,
            "class": event.kind,
            "timestamp": event.at.isoformat() if event.at else "",
            "custom_details": {**event.details, "what": list(event.lines)},
        }
        body["payload"] = {name: value for name, value in payload.items() if value}
        body["client"] = CLIENT
        if event.link:
            body["client_url"] = event.link
            body["links"] = [{"href": event.link, "text": CLIENT}]
    return address(channel.kind, channel.url), body, {}


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


SERVICES: Final[Mapping[str, Service]] = {
    Channel.Kind.PAGERDUTY: Service(
        url="https://events.pagerduty.com/v2/enqueue",
        path="/v2/enqueue",
        key=re.compile(r"[A-Za-z0-9]{32}"),
        key_looks="the integration key of an Events API v2 integration: 32 letters and digits",
        call=_pagerduty,
    ),
}
