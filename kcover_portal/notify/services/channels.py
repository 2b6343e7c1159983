"""Create, change and delete channels and routes. Every act is in the audit log; secrets are not."""

import re
import zoneinfo
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover.actions import attributes
from kcover.faults import catalog
from kcover.notify import events, pager, schedule
from kcover.policy.document.model import CHANNEL
from kcover_portal import encryption
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell, stored_secrets
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify.models import Channel, Delivery, Notice, Route
from kcover_portal.notify.senders import pagers
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.control import notify_steps

SECRET: Final = ("url", "secret")
# The settings of a channel. Its name and kind are fixed, because policies and people refer to them.
SETTINGS: Final = (
    *("url", "secret", "recipients", "language", "person", "batching", "min_interval", "remind", "for_owners"),
    *("quiet_hours", "digest_at", "time_zone", "enabled"),
)
# Kinds that may have a secret beside their address: a signing key, or a pager's key.
SIGNS: Final = (Channel.Kind.WEBHOOK, Channel.Kind.DINGTALK, Channel.Kind.FEISHU, *Channel.PAGERS)
SHORTEST_SECRET: Final = 16
MAX_RECIPIENTS: Final = 20
MAX_BATCHING, MAX_INTERVAL, MAX_REMIND = 3600, 86_400, 30 * 86_400  # seconds


def make_channel(name: str, kind: str, given: Mapping[str, Any], *, actor: str, now: datetime) -> Channel:
    """Creates a channel. Raises FieldError."""
    if not attributes.CHANNEL_NAME.fullmatch(name):
        raise FieldError("name", reasons.of("channel_name_invalid"))
    if kind not in Channel.Kind.values:
        raise FieldError("kind", reasons.of("kind_unknown", kind=repr(kind), known=", ".join(Channel.Kind.values)))
    row = Channel(name=name, kind=kind, created_by=actor, created_at=now)
    _set(row, given)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            note(
                row,
                audit.ChannelCreated(channel=name, kind=kind, settings=_shown(row, SETTINGS)),
                actor=actor,
                now=now,
            )
    except IntegrityError as error:
        raise FieldError("name", reasons.of("channel_exists", channel=name)) from error
    except encryption.KeysUnusable as error:
        raise FieldError("", error.reason, conflict=True) from error
    return row


def change_channel(channel: Channel, given: Mapping[str, Any], *, actor: str, reason: str, now: datetime) -> Channel:
    """Changes the named settings, all or none. Raises FieldError."""
    with transaction.atomic():
        row = Channel.objects.select_for_update(of=("self",)).get(pk=channel.pk)
        before = {name: encryption.peek(row, name) for name in given if name in SETTINGS}
        shown = _shown(row, before)
        _set(row, given)
        stored_secrets.check_address(row, given, before.get("url"), address="url")
        changed = stored_secrets.changed(row, before, address="url")
        if changed:
            _save(row, changed)
            after = _shown(row, changed)
            recorded = {
                name: audit.SECRET_CHANGED if name in SECRET else audit.Change(before=shown[name], after=after[name])
                for name in changed
            }
            act = audit.ChannelChanged(channel=row.name, changed=recorded, reason=reason)
            note(row, act, actor=actor, now=now)
    channel.refresh_from_db()
    return channel


def delete_channel(channel: Channel, *, actor: str, reason: str, now: datetime) -> None:
    """Deletes a channel and its routes; its deliveries stay. Raises FieldError while a rule in force names it."""
    with transaction.atomic():
        row = Channel.objects.select_for_update(of=("self",)).get(pk=channel.pk)
        rules = policies.rules_naming(CHANNEL, row.name)
        if rules:
            used = reasons.of("channel_in_use", channel=row.name, rules=", ".join(rules))
            raise FieldError("name", used, conflict=True)
        under_way = row.deliveries.filter(state__in=Delivery.UNDER_WAY)
        steps = list(Notice.objects.filter(delivery__in=under_way, step__isnull=False).values_list("step", flat=True))
        under_way.update(
            state=Delivery.State.DROPPED,
            batching=False,
            because=reasons.of("channel_deleted").to_json(),
            closed_at=now,
            due_at=None,
        )
        note(row, audit.ChannelDeleted(channel=row.name, kind=row.kind, reason=reason), actor=actor, now=now)
        row.delete()
    for step in steps:
        notify_steps.settle_step(step, because=reasons.of("notify_channel_deleted", channel=channel.name), now=now)


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


def _set(row: Channel, given: Mapping[str, Any]) -> None:
    """Sets the given settings and checks the whole row. Raises FieldError."""
    for name, value in given.items():
        if name not in SETTINGS:
            raise FieldError(name, reasons.of("setting_unknown", name=name, known=", ".join(SETTINGS)))
        setattr(row, name, value)
    if row.kind in Channel.PAGERS and not encryption.is_set(row, "url"):
        row.url = pagers.SERVICES[row.kind].url
    try:
        _check_address(row)
        _check_secret(row)
    except encryption.SecretUnreadable as unreadable:
        raise FieldError(unreadable.place.column.rpartition(".")[2], unreadable.reason) from unreadable
    languages = [code for code, _name in settings.LANGUAGES]
    if row.language not in languages:
        raise FieldError(
            "language", reasons.of("language_unknown", language=repr(row.language), known=", ".join(languages))
        )
    _check_person(row)
    _check_times(row)
    _check_schedule(row)
    if row.for_owners and (row.kind in Channel.PAGERS or row.person is not None):
        raise FieldError("for_owners", reasons.of("owners_of_channel"))


def _save(row: Channel, changed: Collection[str]) -> None:
    """Raises FieldError if a secret cannot be encrypted."""
    try:
        row.save(update_fields=changed)
    except encryption.KeysUnusable as error:
        raise FieldError("", error.reason, conflict=True) from error


def _check_person(row: Channel) -> None:
    if row.person is None:
        return
    if row.kind == Channel.Kind.WEBHOOK:
        raise FieldError("person", reasons.of("person_of_webhook"))
    if row.kind in Channel.PAGERS:
        raise FieldError("person", reasons.of("person_of_pager"))
    if not row.person.is_active:
        raise FieldError("person", reasons.of("person_disabled"))


def _check_times(row: Channel) -> None:
    for name, most in (("batching", MAX_BATCHING), ("min_interval", MAX_INTERVAL)):
        if not 0 <= getattr(row, name) <= most:
            raise FieldError(name, reasons.of("seconds_out_of_range", most=most))
    if row.remind is not None and row.kind in Channel.PAGERS:
        raise FieldError("remind", reasons.of("remind_of_pager"))
    if row.remind is not None and not 0 <= row.remind <= MAX_REMIND:
        raise FieldError("remind", reasons.of("remind_out_of_range", most=MAX_REMIND))


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
    if parts is None or len(url) > 1000 or re.search(r"[\s\x00-\x1f]", url):
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
        raise FieldError("secret", reasons.of("secret_too_long", most=200))


def _shown(row: Channel, names: Collection[str]) -> dict[str, Any]:
    """The settings as the ledger may show them, without secrets."""
    values = {name: getattr(row, name) for name in names if name not in SECRET}
    if "person" in values:
        values["person"] = values["person"].get_username() if values["person"] else None
    return values


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
