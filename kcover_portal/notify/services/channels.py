"""Create, change and delete channels and routes. Every act is in the audit log; secrets are not."""

import re
import zoneinfo
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils.translation import gettext_lazy as _

from kcover import audit, reasons
from kcover.actions import attributes
from kcover.faults import catalog
from kcover.notify import events, pager, schedule
from kcover.policy.document.model import CHANNEL
from kcover_portal import encryption
from kcover_portal.accounts.models import Verb
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify.models import Channel, Delivery, Notice, Route
from kcover_portal.notify.senders import pagers
from kcover_portal.notify.services.channel_columns import COLUMNS, MAX_RECIPIENTS, SIGNS
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.control import notify_steps
from kcover_portal.settings_rows import Given, Resource

SHORTEST_SECRET: Final = 16


class _Channels(Resource[Channel]):
    """Channels."""

    def check(self, row: Channel, given: Given) -> None:
        """Raises FieldError unless the settings fit the kind of the channel."""
        if row.kind in Channel.PAGERS and not encryption.is_set(row, "url"):
            row.url = pagers.SERVICES[row.kind].url
        _check_address(row)
        _check_secret(row)
        languages = [code for code, _name in settings.LANGUAGES]
        if row.language not in languages:
            raise FieldError(
                "language", reasons.of("language_unknown", language=repr(row.language), known=", ".join(languages))
            )
        _check_person(row)
        if row.remind is not None and row.kind in Channel.PAGERS:
            raise FieldError("remind", reasons.of("remind_of_pager"))
        _check_schedule(row)
        if row.for_owners and (row.kind in Channel.PAGERS or row.person is not None):
            raise FieldError("for_owners", reasons.of("owners_of_channel"))

    def before_change(self, row: Channel, before: Given, *, actor: str, now: datetime) -> Collection[str]:
        """Notes who chose its person and where it leads: they could use the links that answer in its person's name."""
        changed = {name for name in ("person", "url", "recipients") if before[name] != encryption.peek(row, name)}
        if not changed:
            return ()
        row.person_by = actor if "person" in changed else row.person_by or row.addressed_by or row.created_by
        row.addressed_by = actor if changed - {"person"} else row.addressed_by or row.created_by
        return ("addressed_by", "person_by")

    def before_delete(self, row: Channel, *, actor: str, reason: str, now: datetime) -> Mapping[str, Any]:
        """Drops what is under way to a channel. Raises FieldError while a rule in force names the channel."""
        rules = policies.rules_naming(CHANNEL, row.name)
        if rules:
            used = reasons.of("channel_in_use", channel=row.name, rules=", ".join(rules))
            raise FieldError("name", used, conflict=True)
        row.deliveries.filter(state__in=Delivery.UNDER_WAY).update(
            state=Delivery.State.DROPPED,
            batching=False,
            because=reasons.of("channel_deleted").to_json(),
            closed_at=now,
            due_at=None,
        )
        return {}

    def delete(self, row: Channel, *, actor: str, reason: str = "", now: datetime) -> None:
        """Deletes a channel and its routes; its deliveries stay. Steps that wait for one of them fail at once."""
        with transaction.atomic():
            self._lock(row)
            under_way = row.deliveries.filter(state__in=Delivery.UNDER_WAY)
            waiting = Notice.objects.filter(delivery__in=under_way, step__isnull=False)
            steps = list(waiting.values_list("step", flat=True))
            super().delete(row, actor=actor, reason=reason, now=now)
        for step in steps:
            notify_steps.settle_step(step, because=reasons.of("notify_channel_deleted", channel=row.name), now=now)


def make_route(
    channel: Channel,
    *,
    kinds: Collection[str],
    cluster: Cluster | None = None,
    least: str = "",
    actor: str,
    now: datetime,
) -> Route:
    """Sends events of these kinds to the channel. Raises FieldError."""
    unknown = sorted(set(kinds) - set(events.KINDS))
    if unknown:
        raise FieldError("kinds", reasons.of("event_unknown", kind=repr(unknown[0]), known=", ".join(events.KINDS)))
    if not kinds:
        raise FieldError("kinds", reasons.of("events_missing"))
    if channel.pages and not set(kinds) <= set(pager.KINDS):
        idle = next(kind for kind in events.KINDS if kind in kinds and kind not in pager.KINDS)
        raise FieldError("kinds", reasons.of("event_not_paged", kind=idle, paged=", ".join(pager.KINDS)))
    if least and least not in catalog.SEVERITIES:
        raise FieldError(
            "least", reasons.of("severity_unknown", severity=repr(least), known=", ".join(catalog.SEVERITIES))
        )
    ordered = [kind for kind in events.KINDS if kind in kinds]
    with transaction.atomic():
        row = Route.objects.create(
            channel=channel, kinds=ordered, cluster=cluster, least=least, created_by=actor, created_at=now
        )
        note(channel, audit.RouteCreated(**_route(row)), actor=actor, now=now)
    return row


def delete_route(route: Route, *, actor: str, reason: str, now: datetime) -> None:
    """Deletes a route; events that it has already added are still sent."""
    with transaction.atomic():
        act = audit.RouteDeleted(**_route(route), reason=reason)
        route.delete()
        note(route.channel, act, actor=actor, now=now)


def _check_person(row: Channel) -> None:
    if row.person is None:
        return
    if row.kind == Channel.Kind.WEBHOOK:
        raise FieldError("person", reasons.of("person_of_webhook"))
    if row.kind in Channel.PAGERS:
        raise FieldError("person", reasons.of("person_of_pager"))
    if not row.person.is_active:
        raise FieldError("person", reasons.of("person_disabled"))


def _check_schedule(row: Channel) -> None:
    if row.kind in Channel.PAGERS and (row.quiet_hours or row.digest_at):
        raise FieldError("quiet_hours" if row.quiet_hours else "digest_at", reasons.of("schedule_of_pager"))
    for name, read in (("quiet_hours", schedule.read_quiet), ("digest_at", schedule.read_time)):
        try:
            read(getattr(row, name))
        except schedule.ScheduleInvalid as error:
            raise FieldError(name, error.reason) from error
    try:
        zoneinfo.ZoneInfo(row.time_zone or settings.TIME_ZONE)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        unknown = reasons.of("time_zone_unknown", zone=repr(row.time_zone), example="Asia/Shanghai")
        raise FieldError("time_zone", unknown) from error


def _check_address(row: Channel) -> None:
    if row.kind != Channel.Kind.MAIL:
        if row.recipients:
            raise FieldError("recipients", reasons.of("recipients_of_url", kind=row.kind))
        if encryption.is_out_of_reach(row, "url"):  # it was checked when it was given
            return
        _check_url(row.url)
        if row.kind in Channel.PAGERS and re.search(r"[?#]", row.url):
            raise FieldError("url", reasons.of("url_with_query"))
        return
    if encryption.is_set(row, "url"):
        raise FieldError("url", reasons.of("url_of_mail"))
    if not settings.EMAIL_HOST:
        raise FieldError("kind", reasons.of("mail_unset"))
    if not row.recipients or len(row.recipients) > MAX_RECIPIENTS:
        raise FieldError("recipients", reasons.of("recipients_count", most=MAX_RECIPIENTS))
    for address in row.recipients:
        try:
            validate_email(address)
        except ValidationError as error:
            raise FieldError("recipients", reasons.of("recipient_invalid", address=repr(address))) from error


def _check_url(url: str) -> None:
    """Raises FieldError. ``outgoing`` checks the resolved address at each call."""
    parts = attributes.web_address(url)
    if parts is None or re.search(r"[\s\x00-\x1f]", url):
        raise FieldError("url", reasons.of("url_invalid"))
    if parts.username or parts.password:
        raise FieldError("url", reasons.of("url_with_password"))


def _check_secret(row: Channel) -> None:
    if encryption.is_out_of_reach(row, "secret"):
        return
    if row.kind in Channel.PAGERS:
        service = pagers.SERVICES[row.kind]
        if not service.key.fullmatch(row.secret):
            raise FieldError("secret", reasons.of(service.key_rule))
        return
    if row.secret and row.kind not in SIGNS:
        raise FieldError("secret", reasons.of("secret_unused", kind=row.kind))
    if row.kind == Channel.Kind.WEBHOOK and not SHORTEST_SECRET <= len(row.secret) <= 200:
        raise FieldError("secret", reasons.of("secret_length", least=SHORTEST_SECRET, most=200))
    if len(row.secret) > 200:
        raise FieldError("secret", reasons.of("text_too_long", most=200))


def _route(row: Route) -> dict[str, Any]:
    return {
        "channel": row.channel.name,
        "route": row.pk,
        "kinds": tuple(row.kinds),
        "cluster": row.cluster.name if row.cluster else "",
        "least": row.least,
    }


def note(channel: Channel, act: audit.ChannelAct, *, actor: str, now: datetime) -> None:
    """Records an act on a channel, and updates the open pages."""
    ledger.record("", act, actor=actor, now=now)
    doorbell.publish("notify", channel.pk or 0)


CHANNELS: Final = _Channels(
    model=Channel,
    noun="channel",
    kinds=tuple(Channel.Kind.values),
    verb=Verb.WRITE_CHANNELS,
    columns=COLUMNS,
    related=("person",),
    created=audit.ChannelCreated,
    changed=audit.ChannelChanged,
    deleted=audit.ChannelDeleted,
    name_hint=_("The name that rules use, e.g. on-call. Cannot be changed later."),
    name_invalid=reasons.of("channel_name_invalid"),
    name_taken=lambda name: reasons.of("channel_exists", channel=name),
    rings="notify",
)
