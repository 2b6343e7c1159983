"""The alerts that are open at an Alertmanager: they are sent again each minute, because it ends those that are not.

If the portal stops, or the channel is switched off, they end ``LASTS`` after they were sent last.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import translation
from django.utils.translation import gettext as _

from kcover.notify import alertmanager, events as core_events
from kcover_portal.lib import doorbell
from kcover_portal.notify import queries, senders
from kcover_portal.notify.models import Alert, Channel, Delivery
from kcover_portal.notify.services import render

LASTS: Final = timedelta(minutes=5)  # Alertmanager's own resolve_timeout
MESSAGE_LASTS: Final = timedelta(hours=1)  # an alert that no event ends
BATCH: Final = 500  # alerts in one request


def body(event: core_events.Event, channel: Channel, *, page: str) -> dict[str, Any]:
    """The alert that this event opens, in the channel's language."""
    with translation.override(channel.language):
        (line,) = core_events.lines([event])
        link = render.link(line) or settings.KCOVER_PUBLIC_URL
        notes = {"summary": render.head(line), "description": render.why(event)}
    return _alert(
        alertmanager.labels(event, page=page, portal=portal_name()),
        {name: text for name, text in notes.items() if text},
        link=link,
        at=event.at,
    )


def test_body(delivery: Delivery, channel: Channel) -> dict[str, Any]:
    """A test alert with the lowest severity, in the active language; it ends by itself."""
    labels = {
        "alertname": alertmanager.TEST,
        "severity": "info",
        alertmanager.PORTAL_LABEL: portal_name(),
        alertmanager.ALERT_LABEL: f"test-{delivery.key}",
    }
    text = _("This is a test message. The channel %(name)s works.") % {"name": channel.name}
    return _alert(labels, {"summary": text}, link=settings.KCOVER_PUBLIC_URL, at=delivery.opened_at)


def firing(alert: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
    """The alert as it is sent while it is open."""
    return {**alert, "endsAt": (now + LASTS).isoformat()}


def ended(alert: Mapping[str, Any], *, at: datetime) -> dict[str, Any]:
    """The alert as it is sent when it is over."""
    return {**alert, "endsAt": max(at, datetime.fromisoformat(alert["startsAt"])).isoformat()}


def portal_name() -> str:
    """The host of KCOVER_PUBLIC_URL, by which portals that share an Alertmanager differ."""
    return urlsplit(settings.KCOVER_PUBLIC_URL).hostname or "kcover"


def repeat(*, now: datetime) -> int:
    """Sends the open alerts of each Alertmanager whose time has come. Returns how many alerts were sent."""
    _forget_messages(now=now)
    return sum(_repeat(channel, now=now) for channel in queries.repeating(now=now))


def _repeat(channel: Channel, *, now: datetime) -> int:
    due = Q(repeat_at__isnull=True) | Q(repeat_at__lte=now)
    if not Channel.objects.filter(due, pk=channel.pk).update(repeat_at=now + queries.REPEAT_EVERY):
        return 0  # another worker does it
    alerts = dict(_open(channel).values_list("pk", "body"))
    try:
        _send(channel, [firing(alert, now=now) for alert in alerts.values()])
        # What ended in the meantime may have been told before it was repeated here. So its end comes last.
        left = set(_open(channel).filter(pk__in=alerts).values_list("pk", flat=True))
        _send(channel, [ended(alert, at=now) for pk, alert in alerts.items() if pk not in left])
    except senders.SendError as refusal:
        trouble = refusal.reason.to_json()
    else:
        trouble = {}
    if Channel.objects.filter(pk=channel.pk).exclude(trouble=trouble).update(trouble=trouble):
        doorbell.publish("notify", channel.pk)
    return 0 if trouble else len(alerts)


def _send(channel: Channel, alerts: Sequence[Mapping[str, Any]]) -> None:
    for first in range(0, len(alerts), BATCH):
        senders.send_alerts(channel, alerts[first : first + BATCH], key=str(uuid.uuid4()))


def _open(channel: Channel) -> QuerySet[Alert]:
    return channel.alerts.exclude(body={}).order_by("pk")


def _forget_messages(*, now: datetime) -> None:
    """An alert that is named after its own event is ended by none: it is not sent again after a while."""
    old = Alert.objects.filter(channel__kind=Channel.Kind.ALERTMANAGER, name=F("page"))
    old.filter(opened_at__lte=now - MESSAGE_LASTS).delete()


def _alert(labels: Mapping[str, str], notes: Mapping[str, str], *, link: str, at: datetime) -> dict[str, Any]:
    more = {"generatorURL": link} if link else {}
    return {"labels": dict(labels), "annotations": dict(notes), "startsAt": at.isoformat(), **more}
