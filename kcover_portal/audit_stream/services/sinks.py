"""Create, change and delete sinks. Every act is in the audit log; secrets and addresses of webhooks are not."""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover.actions import attributes
from kcover_portal import encryption
from kcover_portal.audit_stream import queries
from kcover_portal.audit_stream.models import Position, Sink
from kcover_portal.audit_stream.queries import topics
from kcover_portal.audit_stream.senders import syslog
from kcover_portal.errors import FieldError
from kcover_portal.ledger import services as ledger

SETTINGS: Final = ("address", "secret", "topics", "enabled")
SHORTEST_SECRET, LONGEST_SECRET, LONGEST_ADDRESS = 16, 200, 1000
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def make_sink(
    name: str, kind: str, given: Mapping[str, Any], *, whole: bool = False, actor: str, now: datetime
) -> Sink:
    """Creates a sink, which receives what happens from now on; with ``whole``, everything. Raises FieldError."""
    if not NAME.fullmatch(name):
        raise FieldError("name", reasons.of("sink_name_invalid"))
    if kind not in Sink.Kind.values:
        raise FieldError("kind", reasons.of("kind_unknown", kind=repr(kind), known=", ".join(Sink.Kind.values)))
    row = Sink(name=name, kind=kind, topics=[topics.AUDIT], created_by=actor, created_at=now, due_at=now)
    _set(row, given)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            if not whole:  # what is appended from here on has higher numbers
                _skip_to_heads(row, row.topics)
            act = audit.SinkCreated(sink=name, kind=kind, settings=_shown(row, SETTINGS), whole=whole)
            ledger.record("", act, actor=actor, now=now)
    except IntegrityError as error:
        raise FieldError("name", reasons.of("sink_exists", sink=name), conflict=True) from error
    except encryption.KeysUnusable as error:
        raise FieldError("", error.reason, conflict=True) from error
    return row


def change_sink(sink: Sink, given: Mapping[str, Any], *, actor: str, reason: str, now: datetime) -> Sink:
    """Changes the named settings, all or none, and tries the sink at once. Raises FieldError.

    A sink that is enabled again receives what it has missed. A topic that is added begins now.
    """
    with transaction.atomic():
        row = Sink.objects.select_for_update().get(pk=sink.pk)
        before = {name: encryption.peek(row, name) for name in given if name in SETTINGS}
        shown = _shown(row, before)
        _set(row, given)
        changed = [name for name, value in before.items() if getattr(row, name) != value]
        if changed:
            row.due_at, row.attempts = now, 0
            try:
                row.save(update_fields=[*changed, "due_at", "attempts"])
            except encryption.KeysUnusable as error:
                raise FieldError("", error.reason, conflict=True) from error
            if "topics" in changed:
                _skip_to_heads(row, set(row.topics) - set(before["topics"]))
            after = _shown(row, changed)
            recorded = {
                name: audit.Change(before=shown[name], after=after[name]) if name in after else audit.SECRET_CHANGED
                for name in changed
            }
            act = audit.SinkChanged(sink=row.name, changed=recorded, reason=reason)
            ledger.record("", act, actor=actor, now=now)
    sink.refresh_from_db()
    return sink


def delete_sink(sink: Sink, *, actor: str, reason: str, now: datetime) -> None:
    """Deletes a sink. The audit log says how many records it had not received."""
    with transaction.atomic():
        row = Sink.objects.select_for_update().get(pk=sink.pk)
        behind = queries.lag(row, now=now).records
        act = audit.SinkDeleted(sink=row.name, kind=row.kind, behind=behind, reason=reason)
        ledger.record("", act, actor=actor, now=now)
        row.delete()


def _skip_to_heads(row: Sink, names: Collection[str]) -> None:
    Position.objects.bulk_create(
        [
            Position(sink=row, topic=name, part=part, number=number)
            for name in names
            for part, number in topics.TOPICS[name].heads().items()
        ],
        ignore_conflicts=True,
    )


def _set(row: Sink, given: Mapping[str, Any]) -> None:
    """Sets the given settings and checks the whole row. Raises FieldError."""
    for name, value in given.items():
        if name not in SETTINGS:
            raise FieldError(name, reasons.of("setting_unknown", name=name, known=", ".join(SETTINGS)))
        setattr(row, name, value)
    if not row.topics:
        raise FieldError("topics", reasons.of("topics_missing"))
    for name in row.topics:
        if name not in topics.TOPICS:
            raise FieldError("topics", reasons.of("topic_unknown", topic=repr(name), known=", ".join(topics.TOPICS)))
    row.topics = sorted(set(row.topics))
    try:
        _check_address(row)
        _check_secret(row)
    except encryption.SecretUnreadable as unreadable:
        raise FieldError(unreadable.place.column.rpartition(".")[2], unreadable.reason) from unreadable


def _check_address(row: Sink) -> None:
    match row.kind:
        case Sink.Kind.FILE:
            if settings.KCOVER_AUDIT_FOLDER is None:
                raise FieldError("kind", reasons.of("sink_folder_unset"))
            if not FILE.fullmatch(row.address):
                raise FieldError("address", reasons.of("sink_file_invalid"))
        case Sink.Kind.SYSLOG:
            if len(row.address) > LONGEST_ADDRESS or syslog.address(row.address) is None:
                raise FieldError("address", reasons.of("sink_syslog_invalid"))
        case Sink.Kind.WEBHOOK:
            _check_url(row.address)


def _check_url(url: str) -> None:
    """Raises FieldError. ``outgoing`` checks the resolved address at each call."""
    parts = attributes.web_address(url)
    if parts is None or len(url) > LONGEST_ADDRESS or re.search(r"[\s\x00-\x1f]", url):
        raise FieldError("address", reasons.of("url_invalid"))
    if parts.username or parts.password:
        raise FieldError("address", reasons.of("url_with_password"))


def _check_secret(row: Sink) -> None:
    if row.kind != Sink.Kind.WEBHOOK:
        if row.secret:
            raise FieldError("secret", reasons.of("secret_unused", kind=row.kind))
    elif not SHORTEST_SECRET <= len(row.secret) <= LONGEST_SECRET:
        raise FieldError("secret", reasons.of("secret_length", least=SHORTEST_SECRET, most=LONGEST_SECRET))


def _shown(row: Sink, names: Collection[str]) -> dict[str, Any]:
    """The settings as the audit log may show them."""
    hidden = {"secret", *(["address"] if row.kind == Sink.Kind.WEBHOOK else [])}
    return {name: getattr(row, name) for name in names if name not in hidden}
