"""Create, change and delete sources. Every act is in the audit log; tokens are not."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover.actions import attributes
from kcover.actions.moved_jobs import SOURCE
from kcover.sources import settings
from kcover.sources.observation import Unreadable
from kcover.values import masked_addresses
from kcover_portal import encryption
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import tokens
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell, stored_secrets
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import queries as policies
from kcover_portal.sources.models import Source

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ADDRESS: Final = ("url", "token")  # columns that may also be given as settings
CHANGEABLE: Final = (*ADDRESS, "settings", "enabled")
ASKED: Final = ("query", "node_label")  # settings of Prometheus that change what is read
MAX_TOKEN: Final = 4_000  # characters
SYSTEM: Final = "system"


def make_source(
    name: str,
    kind: str,
    cluster: Cluster,
    *,
    url: str = "",
    token: str = "",
    given: Mapping[str, Any],
    enabled: bool = True,
    actor: str,
    now: datetime,
) -> Source:
    """Creates a source. ``given``: its settings. Raises FieldError."""
    if not NAME.fullmatch(name):
        raise FieldError("name", reasons.of("source_name_invalid"))
    if kind not in settings.KINDS:
        known = ", ".join(settings.KINDS)
        raise FieldError("kind", reasons.of("kind_unknown", kind=repr(kind[:60]), known=known))
    if kind in settings.WATCHED:
        raise FieldError("kind", reasons.of("source_builtin_kind", kind=kind))
    row = Source(name=name, kind=kind, cluster=cluster, created_by=actor, created_at=now)
    address = {name: value for name, value in (("url", url), ("token", token)) if value}
    columns = _with_address(kind, {**address, "settings": dict(given)})
    _set(row, {"url": "", "token": "", "enabled": enabled, **columns})
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            _note(row, audit.SourceCreated(source=name, kind=kind, settings=_shown(row)), actor=actor, now=now)
    except IntegrityError as error:
        raise FieldError("name", reasons.of("source_exists", source=name)) from error
    except encryption.KeysUnusable as error:
        raise FieldError("", error.reason, conflict=True) from error
    return row


def make_watched_sources(now: datetime) -> None:
    """Creates the sources that exist for each cluster, where they are missing."""
    missing = Cluster.objects.exclude(pk__in=Source.objects.filter(kind=settings.WATCHED[0]).values("cluster"))
    rows = [
        Source(name=f"{cluster.name}-{kind}", kind=kind, cluster=cluster, created_by=SYSTEM, created_at=now)
        for cluster in missing
        for kind in settings.WATCHED
    ]
    Source.objects.bulk_create(rows, ignore_conflicts=True)


def change_source(source: Source, given: Mapping[str, Any], *, actor: str, reason: str, now: datetime) -> Source:
    """Changes the named columns, all or none. Settings that are not named stay; null removes one. Raises FieldError."""
    given = _with_address(source.kind, given)
    with transaction.atomic():
        row = Source.objects.select_related("cluster").select_for_update(of=("self",)).get(pk=source.pk)
        before, receiver = {name: encryption.peek(row, name) for name in CHANGEABLE}, row.receiver
        merged = dict(given)
        if "settings" in given:
            merged["settings"] = {**row.settings, **given["settings"]}
        _set(row, merged)
        moved = row.receiver != receiver and encryption.is_set(row, "token")
        if moved and "token" not in given:
            _check_receiver(row, before)
        changed = {name for name in given if before[name] != encryption.peek(row, name)}
        if not changed:
            return row
        if moved:
            row.token = given.get("token", before["token"])  # it is encrypted for its receiver
        if row.is_pulled:  # it is read again at once, and Prometheus from the start if it was asked something else
            row.due_at, row.attempts = None, 0
            row.cursor = {} if row.kind == Source.Kind.PROMETHEUS and _asks_other(row, before) else row.cursor
        try:
            columns = {*changed, "token"} if moved else changed
            row.save(update_fields={*columns, "due_at", "attempts", "cursor"} if row.is_pulled else columns)
        except encryption.KeysUnusable as error:
            raise FieldError("", error.reason, conflict=True) from error
        changes = {
            name: audit.SECRET_CHANGED if name == "token" else _change(before[name], getattr(row, name))
            for name in sorted(changed)
        }
        _note(row, audit.SourceChanged(source=row.name, changed=changes, reason=reason), actor=actor, now=now)
    return row


def _asks_other(row: Source, before: Mapping[str, Any]) -> bool:
    """Returns whether the answers are about something else than before. How often it is asked changes none."""
    then, settings_now = before["settings"], row.settings
    return row.url != before["url"] or any(then.get(name) != settings_now.get(name) for name in ASKED)


def delete_source(source: Source, *, actor: str, reason: str, now: datetime) -> None:
    """Deletes a source and revokes its tokens; incidents that it opened stay.

    Raises FieldError for a source that exists for each cluster, and while a rule in force names the source.
    """
    if source.is_builtin:
        raise FieldError("", reasons.of("source_builtin", source=source.name), conflict=True)
    with transaction.atomic():
        rules = policies.rules_naming(SOURCE, source.name)
        if rules:
            used = reasons.of("source_in_use", source=source.name, rules=", ".join(rules))
            raise FieldError("", used, conflict=True)
        act = audit.SourceDeleted(source=source.name, kind=source.kind, reason=reason)
        for token in ApiToken.objects.filter(kind=ApiToken.Kind.SOURCE, source=source.name, revoked_at=None):
            tokens.revoke_token(token, actor=actor, reason=reason, now=now)
        _note(source, act, actor=actor, now=now)
        source.delete()


def note_error(source: Source, reason: reasons.Reason | None, *, now: datetime) -> None:
    """Stores why a source could not be read; None after it could."""
    if reason is None:
        Source.objects.filter(pk=source.pk).update(error={}, error_at=None, last_contact_at=now)
    else:
        Source.objects.filter(pk=source.pk).update(error=reason.to_json(), error_at=now)
    doorbell.publish("source", source.pk)


def _with_address(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns, with ``url`` and ``token`` taken out of the settings, where they may be given too.

    Raises FieldError if they are given twice.
    """
    inside = given.get("settings")
    if kind not in settings.ADDRESSED or not isinstance(inside, Mapping):
        return dict(given)
    address = {name: inside[name] for name in ADDRESS if isinstance(inside.get(name), str)}
    for name in address:
        if name in given:
            twice = reasons.of("one_of_parameters", first=name, second=f"settings/{name}")
            raise FieldError(f"settings/{name}", twice)
    return {**given, **address, "settings": {name: inside[name] for name in inside if name not in address}}


def _set(row: Source, given: Mapping[str, Any]) -> None:
    """Sets the given columns and checks the whole row. Raises FieldError."""
    for name, value in given.items():
        setattr(row, name, value)
    try:
        row.settings = settings.read(row.kind, row.settings)
    except Unreadable as error:
        raise FieldError(f"settings/{error.path}", error.reason) from error
    _check_address(row)
    if encryption.is_set(row, "token"):
        if row.kind not in settings.ADDRESSED:
            raise FieldError("token", reasons.of("source_token_unused", kind=row.kind))
        if isinstance(given.get("token"), str) and len(given["token"]) > MAX_TOKEN:
            raise FieldError("token", reasons.of("source_token_long", most=MAX_TOKEN))


def _check_receiver(row: Source, before: Mapping[str, Any]) -> None:
    """Raises FieldError if the stored token would go to another server, or to one whose certificate nobody checks.

    Also if this process cannot read the token to encrypt it for its receiver.
    """
    stored_secrets.check_server(before["url"], row.url, secret="token")
    if before["token"] is None or (row.settings.get("insecure") and not before["settings"].get("insecure")):
        raise FieldError("token", reasons.of("secret_again"))


def _check_address(row: Source) -> None:
    if row.kind not in settings.ADDRESSED:
        if row.url:
            raise FieldError("url", reasons.of("source_url_unused", kind=row.kind))
        return
    if not row.url:
        raise FieldError("url", reasons.of("source_url_missing", kind=row.kind))
    if refusal := attributes.url(row.url):
        raise FieldError("url", refusal)


def _change(before: object, after: object) -> audit.Change:
    return audit.Change(before=masked_addresses.mask(before), after=masked_addresses.mask(after))


def _shown(row: Source) -> dict[str, Any]:
    """The columns as the audit log may show them, without the token."""
    return {
        "cluster": row.cluster.name,
        "url": masked_addresses.mask_text(row.url),
        "settings": row.settings,
        "enabled": row.enabled,
    }


def _note(row: Source, act: audit.SourceAct, *, actor: str, now: datetime) -> None:
    ledger.record(row.cluster.name, act, actor=actor, now=now)
    doorbell.publish("source", row.pk or 0)
