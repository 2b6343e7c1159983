"""Create, change and delete sinks. Every act is in the audit log; secrets and addresses of webhooks are not."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from django.utils.translation import gettext_lazy as _

from kcover import audit, reasons
from kcover_portal import encryption
from kcover_portal.accounts.models import Verb
from kcover_portal.audit_stream import queries
from kcover_portal.audit_stream.models import Position, Sink
from kcover_portal.audit_stream.queries import topics, vendors
from kcover_portal.audit_stream.services import kinds, options
from kcover_portal.audit_stream.services.sink_columns import COLUMNS
from kcover_portal.lib.errors import FieldError
from kcover_portal.settings_rows import Flag, Given, Resource

WHOLE: Final = "whole"


class _Sinks(Resource[Sink]):
    """Sinks. A new one receives what happens from now on, or everything."""

    def check(self, row: Sink, given: Given) -> None:
        """Raises FieldError unless topics, address, secret and options fit the kind of the sink."""
        if "incoming_secret" in given:
            kinds.check_incoming_secret(row, given["incoming_secret"])
        _check_topics(row)
        kinds.check(row)
        kinds.set_incoming_key(row, given=given)

    def more_verbs(self, given: Given, row: Sink | None) -> Collection[str]:
        """A sink that takes answers moves repairs, so whoever sets its secret needs the right to do that."""
        named = {name for name, value in {**given, **(given.get("options") or {})}.items() if value}
        takes = row is not None and (encryption.is_set(row, "incoming_key") or options.ANSWERING & row.options.keys())
        return (Verb.HANDLE_REPAIRS,) if takes or options.ANSWERING & named else ()

    def not_secret(self, row: Sink) -> Collection[str]:
        """The address: that of a webhook may contain a key."""
        return () if row.kind in Sink.WEBHOOKS else ("address",)

    def before_make(self, row: Sink, *, now: datetime) -> None:
        row.topics, row.due_at = [topics.TICKETS if row.kind in Sink.TICKETS else topics.AUDIT], now

    def after_make(self, row: Sink, making: Given) -> Mapping[str, Any]:
        whole = making.get(WHOLE, False)
        if not whole:  # what is appended from here on has higher numbers
            _skip_to_heads(row, row.topics)
        return {"whole": whole}

    def before_change(self, row: Sink, before: Given, *, actor: str, now: datetime) -> Collection[str]:
        """Tries the sink at once. One that is enabled again gets what it has missed. A new topic begins now."""
        row.due_at, row.attempts = now, 0
        _skip_to_heads(row, set(row.topics) - set(before["topics"]))
        return ("incoming_key", "due_at", "attempts")

    def before_delete(self, row: Sink, *, actor: str, reason: str, now: datetime) -> Mapping[str, Any]:
        return {"behind": queries.lag(row, now=now).records}


def _check_topics(row: Sink) -> None:
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


def _skip_to_heads(row: Sink, names: Collection[str]) -> None:
    Position.objects.bulk_create(
        [
            Position(sink=row, topic=name, part=part, number=number)
            for name in names
            for part, number in topics.TOPICS[name].heads().items()
        ],
        ignore_conflicts=True,
    )


SINKS: Final = _Sinks(
    model=Sink,
    noun="sink",
    verb=Verb.STREAM_AUDIT,
    kinds=tuple(Sink.Kind.values),
    columns=COLUMNS,
    making=(
        Flag(
            name=WHOLE,
            label=_("Include past entries"),
            hint=_("All existing entries are sent first."),
            initial=False,
        ),
    ),
    fetched=("positions",),
    created=audit.SinkCreated,
    changed=audit.SinkChanged,
    deleted=audit.SinkDeleted,
    name_invalid=reasons.of("sink_name_invalid"),
    name_taken=lambda name: reasons.of("sink_exists", sink=name),
    taken_conflicts=True,
)
