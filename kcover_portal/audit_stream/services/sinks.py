"""Create, change and delete sinks. Every act is in the audit log; secrets and addresses of webhooks are not."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover_portal import encryption
from kcover_portal.audit_stream import queries
from kcover_portal.audit_stream.models import Position, Sink
from kcover_portal.audit_stream.queries import topics, vendors
from kcover_portal.audit_stream.services import kinds
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import stored_secrets
from kcover_portal.lib.errors import FieldError

SETTINGS: Final = ("address", "secret", "incoming_secret", "options", "topics", "enabled")
INCOMING: Final = {"incoming_secret": "incoming_key"}  # the column of the setting
SECRETS: Final = frozenset({"secret", "incoming_key"})
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def make_sink(
    name: str, kind: str, given: Mapping[str, Any], *, whole: bool = False, actor: str, now: datetime
) -> Sink:
    """Creates a sink, which receives what happens from now on; with ``whole``, everything. Raises FieldError."""
    if not NAME.fullmatch(name):
        raise FieldError("name", reasons.of("sink_name_invalid"))
    if kind not in Sink.Kind.values:
        raise FieldError("kind", reasons.of("kind_unknown", kind=repr(kind), known=", ".join(Sink.Kind.values)))
    first = topics.TICKETS if kind in Sink.TICKETS else topics.AUDIT
    row = Sink(name=name, kind=kind, topics=[first], created_by=actor, created_at=now, due_at=now)
    _set(row, given)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            if not whole:  # what is appended from here on has higher numbers
                _skip_to_heads(row, row.topics)
            act = audit.SinkCreated(sink=name, kind=kind, settings=_shown(row, _columns(SETTINGS)), whole=whole)
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
        before = {name: encryption.peek(row, name) for name in _columns(name for name in given if name in SETTINGS)}
        shown = _shown(row, before)
        _set(row, given)
        stored_secrets.check_address(row, given, before.get("address"), address="address")
        changed = stored_secrets.changed(row, before, address="address")
        if changed:
            row.due_at, row.attempts = now, 0
            try:
                row.save(update_fields=[*changed, "incoming_key", "due_at", "attempts"])
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
        if name in INCOMING:
            kinds.check_incoming_secret(row, value)
        setattr(row, INCOMING.get(name, name), value)
    if not row.topics:
        raise FieldError("topics", reasons.of("topics_missing"))
    for name in row.topics:
        if name not in topics.TOPICS:
            raise FieldError("topics", reasons.of("topic_unknown", topic=repr(name), known=", ".join(topics.TOPICS)))
    row.topics = sorted(set(row.topics))
    if row.kind in Sink.TICKETS and row.topics != [topics.TICKETS]:
        raise FieldError("topics", reasons.of("sink_tickets_only", kind=row.kind, topic=topics.TICKETS))
    if row.options.get(vendors.VENDORS) and row.topics != [topics.TICKETS]:  # the audit log is about all vendors
        raise FieldError("topics", reasons.of("sink_vendors_topics", name=vendors.VENDORS, topic=topics.TICKETS))
    try:
        kinds.check(row)
        kinds.set_incoming_key(row, given=given)
    except encryption.SecretUnreadable as unreadable:
        raise FieldError(unreadable.place.column.rpartition(".")[2], unreadable.reason) from unreadable


def _columns(names: Iterable[str]) -> list[str]:
    return [INCOMING.get(name, name) for name in names]


def _shown(row: Sink, names: Collection[str]) -> dict[str, Any]:
    """The settings as the audit log may show them."""
    hidden = {*SECRETS, *(["address"] if row.kind in Sink.WEBHOOKS else [])}
    return {name: getattr(row, name) for name in names if name not in hidden}
