"""On-call services: one event for each alert and one for its end, under a name by which repetitions are one page.

Sources: PagerDuty, "Events API v2" (``POST /v2/enqueue``); Opsgenie, "Alert API" (``POST /v2/alerts``, Jira Service
Management takes the same). Both answer before they process an event: 202 only says that it is well-formed.
Alertmanager, ``POST /api/v2/alerts``, takes a list of alerts; it knows an alert by its labels.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from kcover import reasons
from kcover.notify import pager
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders import webhook
from kcover_portal.notify.senders.message import PagerEvent

MAX_ANSWER_BYTES: Final = 4096
CLIENT: Final = "kcover portal"
MAX_REASON: Final = 200  # characters of a service's reason
SUMMARY: Final = 1024  # characters, as PagerDuty counts them
MESSAGE, DESCRIPTION, SOURCE, TAG, DETAIL = 130, 15_000, 100, 50, 1000  # as Opsgenie counts; all details: 8000
SEVERITIES: Final = {"info": "info", "warning": "warning", "degraded": "error", "fatal": "critical"}
PRIORITIES: Final = {"info": "P5", "warning": "P3", "degraded": "P2", "fatal": "P1"}
VERBS: Final = {pager.ACKNOWLEDGE: "acknowledge", pager.RESOLVE: "close"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service: its default URL, the path that an address may omit, and the format of its key.

    ``url`` "": there is no default.
    """

    url: str
    path: str
    key: re.Pattern[str]
    key_rule: str  # code of the sentence about an invalid key
    call: Callable[[Channel, PagerEvent], tuple[str, Any, Mapping[str, str]]]


def send(channel: Channel, event: PagerEvent, *, key: str) -> reasons.Reason:
    """Posts the event. Raises SendError, with the service's own reason and never with the key."""
    return _post(channel, *SERVICES[channel.kind].call(channel, event), key=key)


def send_alerts(channel: Channel, alerts: Sequence[Mapping[str, Any]], *, key: str) -> reasons.Reason:
    """Posts several alerts to an Alertmanager. Raises SendError as ``send`` does."""
    return _post(channel, address(channel.kind, channel.url), alerts, _authorization(channel), key=key)


def _post(channel: Channel, url: str, body: Any, headers: Mapping[str, str], *, key: str) -> reasons.Reason:
    def why(data: bytes) -> str:
        return _why(data).replace(channel.secret or "\0", "…")[
            :MAX_REASON
        ]  # before the text is cut, so that a part of a key is hidden as well

    reply = webhook.post(url, body, secret="", key=key, most=MAX_ANSWER_BYTES, headers=headers, why=why)
    return reasons.of("answered", status=str(reply.status))


def address(kind: str, url: str) -> str:
    """The URL of events: the channel's address, which may omit the service's fixed path."""
    service = SERVICES[kind]
    base = url.rstrip("/")
    return base if base.endswith(service.path) else base + service.path


def page_name(channel: Channel, page: str) -> str:
    """The name by which the service recognises repetitions. It is unique among the portals that share a service."""
    return f"kcover-{channel.created_at:%Y%m%dT%H%M%S}-{page}"


def _why(data: bytes) -> str:
    """The service's reason, in one line."""
    try:
        answer = json.loads(data[:MAX_ANSWER_BYTES])
    except (ValueError, RecursionError):
        return ""
    if isinstance(answer, str):
        answer = {"message": answer}  # of an Alertmanager
    if not isinstance(answer, dict):
        return ""
    errors = answer.get("errors")
    if isinstance(errors, dict):
        errors = [f"{name}: {value}" for name, value in errors.items()]
    messages = errors if isinstance(errors, list) and errors else [answer.get("message") or ""]
    text = " ".join("; ".join(map(str, messages)).split())
    return "".join(char for char in text if char.isprintable())


def _pagerduty(channel: Channel, event: PagerEvent) -> tuple[str, dict[str, Any], Mapping[str, str]]:
    body: dict[str, Any] = {
        "routing_key": channel.secret,
        "event_action": event.action,
        "dedup_key": page_name(channel, event.page),
    }
    if event.action == pager.TRIGGER:
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


def _opsgenie(channel: Channel, event: PagerEvent) -> tuple[str, dict[str, Any], Mapping[str, str]]:
    url, alias = address(channel.kind, channel.url), page_name(channel, event.page)
    headers = {"Authorization": f"GenieKey {channel.secret}"}
    if event.action != pager.TRIGGER:
        url += f"/{quote(alias, safe='')}/{VERBS[event.action]}?identifierType=alias"
        return url, {"source": CLIENT, "note": _short(event.summary, DESCRIPTION)}, headers
    details = {**event.details, "link": event.link}
    body: dict[str, Any] = {
        "message": _short(event.summary, MESSAGE),
        "alias": alias,
        "description": _short("\n".join([*event.lines, *([event.link] if event.link else [])]), DESCRIPTION),
        "priority": PRIORITIES[event.severity],
        "source": _short(urlsplit(event.link).hostname or CLIENT, SOURCE),
        "entity": event.source,
        "tags": [_short(tag, TAG) for tag in ("kcover", event.kind, event.cluster) if tag],
        "details": {name: _short(value, DETAIL) for name, value in details.items() if value},
    }
    return url, {name: value for name, value in body.items() if value}, headers


def _alertmanager(channel: Channel, event: PagerEvent) -> tuple[str, Any, Mapping[str, str]]:
    return address(channel.kind, channel.url), [event.body], _authorization(channel)


def _authorization(channel: Channel) -> Mapping[str, str]:
    """For a token, or for USER:PASSWORD; nothing without a secret."""
    if not channel.secret:
        return {}
    if ":" not in channel.secret:
        return {"Authorization": f"Bearer {channel.secret}"}
    return {"Authorization": f"Basic {base64.b64encode(channel.secret.encode()).decode()}"}


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


SERVICES: Final[Mapping[str, Service]] = {
    Channel.Kind.PAGERDUTY: Service(
        url="https://events.pagerduty.com/v2/enqueue",
        path="/v2/enqueue",
        key=re.compile(r"[A-Za-z0-9]{32}"),
        key_rule="secret_of_pagerduty",
        call=_pagerduty,
    ),
    Channel.Kind.OPSGENIE: Service(
        url="https://api.opsgenie.com",
        path="/v2/alerts",
        key=re.compile(r"[A-Za-z0-9_-]{16,200}"),
        key_rule="secret_of_opsgenie",
        call=_opsgenie,
    ),
    Channel.Kind.ALERTMANAGER: Service(
        url="",
        path="/api/v2/alerts",
        # Nothing, a token (RFC 6750), or a user and a password.
        key=re.compile(r"|[A-Za-z0-9._~+/-]{1,4000}=*|[^:\x00-\x1f]{1,200}:[^\x00-\x1f]{1,1000}"),
        key_rule="secret_of_alertmanager",
        call=_alertmanager,
    ),
}
