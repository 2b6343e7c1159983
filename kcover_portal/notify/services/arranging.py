"""Arranging: channels and routes are made, changed and taken away, each act on record; secrets never are."""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from kcover import catalog, notices, paging
from kcover.policy.document import actions
from kcover_portal import doorbell
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.notify import queries
from kcover_portal.notify.models import Channel, Delivery, Notice, Route
from kcover_portal.notify.senders import pagers
from kcover_portal.rescue.services import telling

SECRET: Final = ("url", "secret")
# What may be set of a channel; its name and kind stay, because policies and people go by them.
SETTINGS: Final = ("url", "secret", "recipients", "language", "person", "gather", "spacing", "remind", "enabled")
# Kinds that may have a secret beside their address: they sign with it, or it is a pager's key.
SIGNS: Final = (Channel.Kind.WEBHOOK, Channel.Kind.DINGTALK, Channel.Kind.FEISHU, *Channel.PAGERS)
SHORTEST_SECRET: Final = 16
MOST_RECIPIENTS: Final = 20
MOST_GATHER, MOST_SPACING, MOST_REMIND = 3600, 86_400, 30 * 86_400  # seconds


class Refused(Exception):
    """What was asked for cannot be; ``field`` names what is wrong, the message says what is accepted."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def make_channel(name: str, kind: str, given: Mapping[str, Any], *, actor: str, now: datetime) -> Channel:
    """A new channel. Raises Refused."""
    if not actions.CHANNEL.fullmatch(name):
        raise Refused(
            "name", "a channel's name has lower-case letters, digits and '-', at most 63: on-call for example"
        )
    if kind not in Channel.Kind.values:
        raise Refused("kind", f"unknown kind {kind!r}: use one of {', '.join(Channel.Kind.values)}")
    row = Channel(name=name, kind=kind, created_by=actor, created_at=now)
    _set(row, given)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            _note(row, "channel.created", actor=actor, now=now, data={"kind": kind, **_shown(row, SETTINGS)})
    except IntegrityError as error:
        raise Refused("name", f"there is a channel {name} already") from error
    return row


def change_channel(channel: Channel, given: Mapping[str, Any], *, actor: str, reason: str, now: datetime) -> Channel:
    """Changes the named settings, all or none. Raises Refused."""
    with transaction.atomic():
        row = Channel.objects.select_for_update(of=("self",)).get(pk=channel.pk)
        before = {name: getattr(row, name) for name in given if name in SETTINGS}
        shown = _shown(row, before)
        _set(row, given)
        changed = [name for name, value in before.items() if getattr(row, name) != value]
        if changed:
            row.save(update_fields=changed)
            after = _shown(row, changed)
            told = {
                name: {"from": "", "to": "changed"} if name in SECRET else {"from": shown[name], "to": after[name]}
                for name in changed
            }
            _note(row, "channel.changed", actor=actor, now=now, data={"changed": told, "reason": reason})
    channel.refresh_from_db()
    return channel


def delete_channel(channel: Channel, *, actor: str, reason: str, now: datetime) -> None:
    """Takes a channel and its routes away; its deliveries stay. Raises Refused while a rule in force names it."""
    with transaction.atomic():
        row = Channel.objects.select_for_update(of=("self",)).get(pk=channel.pk)
        rules = queries.rules_naming(row.name)
        if rules:
            raise Refused("name", f"channel {row.name} is named by rule {', '.join(rules)}: change that first")
        under_way = row.deliveries.filter(state__in=Delivery.UNDER_WAY)
        steps = list(Notice.objects.filter(delivery__in=under_way, step__isnull=False).values_list("step", flat=True))
        under_way.update(
            state=Delivery.State.DROPPED, gathers=False, because="the channel was deleted", closed_at=now, due_at=None
        )
        _note(row, "channel.deleted", actor=actor, now=now, data={"kind": row.kind, "reason": reason})
        row.delete()
    for step in steps:
        telling.told(step, said=f"not delivered: the channel {channel.name} was deleted", now=now)


def make_route(
    channel: Channel,
    *,
    kinds: Collection[str],
    cluster: Cluster | None = None,
    least: str = "",
    actor: str,
    now: datetime,
) -> Route:
    """Lets happenings of these kinds go to the channel. Raises Refused."""
    unknown = sorted(set(kinds) - set(notices.KINDS))
    if unknown:
        raise Refused("kinds", f"unknown kind {unknown[0]!r}: use {', '.join(notices.KINDS)}")
    if not kinds:
        raise Refused("kinds", "name at least one kind of happening")
    if channel.pages and not set(kinds) <= set(paging.KINDS):
        idle = next(kind for kind in notices.KINDS if kind in kinds and kind not in paging.KINDS)
        raise Refused(
            "kinds",
            f"{idle} wakes nobody: a pager takes {', '.join(paging.KINDS)}, and is told by itself when they are over",
        )
    if least and least not in catalog.SEVERITIES:
        raise Refused("least", f"unknown severity {least!r}: use one of {', '.join(catalog.SEVERITIES)}")
    ordered = [kind for kind in notices.KINDS if kind in kinds]
    with transaction.atomic():
        row = Route.objects.create(
            channel=channel, kinds=ordered, cluster=cluster, least=least, created_by=actor, created_at=now
        )
        _note(channel, "route.created", actor=actor, now=now, data=_route(row))
    return row


def delete_route(route: Route, *, actor: str, reason: str, now: datetime) -> None:
    """Takes a route away; what has gathered by it is still told."""
    with transaction.atomic():
        data = {**_route(route), "reason": reason}
        route.delete()
        _note(route.channel, "route.deleted", actor=actor, now=now, data=data)


def _set(row: Channel, given: Mapping[str, Any]) -> None:
    """Puts the given settings into the row, and looks at the whole. Raises Refused."""
    for name, value in given.items():
        if name not in SETTINGS:
            raise Refused(name, f"there is no setting {name} of a channel: there are {', '.join(SETTINGS)}")
        setattr(row, name, value)
    if row.kind in Channel.PAGERS:
        row.url = row.url or pagers.SERVICES[row.kind].url
    _check_address(row)
    _check_secret(row)
    languages = [code for code, _name in settings.LANGUAGES]
    if row.language not in languages:
        raise Refused("language", f"unknown language {row.language!r}: use one of {', '.join(languages)}")
    if row.person is not None and row.kind == Channel.Kind.WEBHOOK:
        raise Refused("person", "a webhook reaches a program, and no person")
    if row.person is not None and row.kind in Channel.PAGERS:
        raise Refused("person", "a pager reaches whoever is on call, and not always the same person")
    if row.person is not None and not row.person.is_active:
        raise Refused("person", "this person may not sign in")
    for name, most in (("gather", MOST_GATHER), ("spacing", MOST_SPACING)):
        if not 0 <= getattr(row, name) <= most:
            raise Refused(name, f"write seconds from 0 to {most}")
    if row.remind is not None and row.kind in Channel.PAGERS:
        raise Refused("remind", "a pager reminds by its own escalation: what is told again stays the same page there")
    if row.remind is not None and not 0 <= row.remind <= MOST_REMIND:
        raise Refused("remind", f"write seconds from 0 (never) to {MOST_REMIND}, or nothing for half of the time")


def _check_address(row: Channel) -> None:
    if row.kind != Channel.Kind.MAIL:
        if row.recipients:
            raise Refused("recipients", f"a channel of kind {row.kind} has a url, and no recipients")
        _check_url(row.url)
        if row.kind in Channel.PAGERS and re.search(r"[?#]", row.url):
            raise Refused("url", "a pager's address ends with its path, without '?' and '#'")
        return
    if row.url:
        raise Refused("url", "e-mail has recipients, and no url")
    if not settings.EMAIL_HOST:
        raise Refused("kind", "there is no mail server: set KCOVER_MAIL_URL first")
    if not row.recipients or len(row.recipients) > MOST_RECIPIENTS:
        raise Refused("recipients", f"name 1 to {MOST_RECIPIENTS} addresses of e-mail")
    for address in row.recipients:
        try:
            validate_email(address)
        except ValidationError as error:
            raise Refused("recipients", f"{address!r} is no address of e-mail") from error


def _check_url(url: str) -> None:
    """Raises Refused; the address itself is looked at by ``outgoing`` each time that it is called."""
    message = "write an address such as https://hooks.example/T0/B0, without spaces, at most 1000 characters"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError where it is no port
    except ValueError as error:
        raise Refused("url", message) from error
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or len(url) > 1000
        or re.search(r"[\s\x00-\x1f]", url)
    ):
        raise Refused("url", message)
    if parts.username or parts.password:
        raise Refused("url", "no user and password in an address: they would show in error messages")


def _check_secret(row: Channel) -> None:
    if row.kind in Channel.PAGERS:
        service = pagers.SERVICES[row.kind]
        if not service.key.fullmatch(row.secret):
            raise Refused("secret", f"write {service.key_looks}")
        return
    if row.secret and row.kind not in SIGNS:
        raise Refused("secret", f"a channel of kind {row.kind} has no secret beside its address")
    if row.kind == Channel.Kind.WEBHOOK and not SHORTEST_SECRET <= len(row.secret) <= 200:
        raise Refused("secret", f"a webhook is signed: write a secret of {SHORTEST_SECRET} to 200 characters")
    if len(row.secret) > 200:
        raise Refused("secret", "a secret has at most 200 characters")


def _shown(row: Channel, names: Collection[str]) -> dict[str, Any]:
    """Settings as the ledger may show them."""
    values = {name: getattr(row, name) for name in names if name not in SECRET}
    if "person" in values:
        values["person"] = values["person"].get_username() if values["person"] else None
    return values


def _route(row: Route) -> dict[str, Any]:
    return {"route": row.pk, "kinds": row.kinds, "cluster": row.cluster.name if row.cluster else "", "least": row.least}


def _note(channel: Channel, verb: str, *, actor: str, now: datetime, data: dict[str, Any]) -> None:
    ledger.write("", actor=actor, verb=verb, subject=f"channel {channel.name}", now=now, data=data)
    doorbell.tell("notify", channel.pk or 0)
