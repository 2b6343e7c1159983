"""Acts about a need. Each is a row and an entry in the audit log; pages learn of it at once."""

from datetime import datetime, timedelta

from django.db import transaction

from kcover import actors, audit, need_causes, reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import FieldError, Refused
from kcover_portal.needs.models import NeedAct
from kcover_portal.needs.queries import Entry
from kcover_portal.runtime.services import retention

MAX_SNOOZE = timedelta(days=7)


class NeedRefused(Refused):
    """The need does not allow this act."""


def places_of(entry: Entry) -> list[Cluster | Node]:
    """Where a caller must have the role: each of its nodes, or its cluster without nodes."""
    nodes: dict[int, Cluster | Node] = {item.place.pk: item.place for item in entry.items if item.place}
    return list(nodes.values()) if len(nodes) and all(item.place for item in entry.items) else [entry.cluster]


def acknowledge(entry: Entry, *, actor: str, reason: str, now: datetime) -> NeedAct:
    """Records that somebody has seen it and takes care. It stays on the list, and ends when the need gets worse."""
    act = audit.NeedAcknowledged(need=entry.id, kind=entry.kind, nodes=entry.nodes, reason=reason)
    return _record(entry, NeedAct.Verb.ACKNOWLEDGE, act, actor=actor, reason=reason, now=now)


def unacknowledge(entry: Entry, *, actor: str, reason: str, now: datetime) -> NeedAct:
    """Takes an acknowledgement back, whoever gave it. Raises NeedRefused if there is none."""
    if not entry.handling.acknowledged_by:
        raise NeedRefused(reasons.of("need_not_acknowledged"))
    act = audit.NeedUnacknowledged(need=entry.id, kind=entry.kind, nodes=entry.nodes, reason=reason)
    return _record(entry, NeedAct.Verb.UNACKNOWLEDGE, act, actor=actor, reason=reason, now=now)


def assign(entry: Entry, *, assignee: str, actor: str, reason: str, now: datetime) -> NeedAct:
    """Makes a user responsible, by name; "" makes it nobody's. Raises FieldError if the user cannot act there."""
    if assignee:
        user = accounts.find_user(assignee)
        may = user is not None and user.is_active and all(accounts.may(user, Verb.REPAIR, p) for p in places_of(entry))
        if not may:
            raise FieldError("assignee", reasons.of("need_assignee_unknown", name=assignee))
    whose = actors.user(assignee) if assignee else ""
    act = audit.NeedAssigned(need=entry.id, kind=entry.kind, nodes=entry.nodes, reason=reason, assignee=whose)
    return _record(entry, NeedAct.Verb.ASSIGN, act, actor=actor, reason=reason, now=now, assignee=whose)


def snooze(entry: Entry, *, until: datetime | None, actor: str, reason: str, now: datetime) -> NeedAct:
    """Takes it out of sight until then, or until it gets worse; None brings it back. Raises NeedRefused, FieldError."""
    if until is not None:
        if entry.kind in need_causes.NEVER_SNOOZED:
            raise NeedRefused(reasons.of("need_not_snoozed"))
        if until <= now:
            raise FieldError("until", reasons.of("need_snooze_past"))
        if until > now + MAX_SNOOZE:
            raise FieldError("until", reasons.of("need_snooze_far", days=MAX_SNOOZE.days))
    act = audit.NeedSnoozed(need=entry.id, kind=entry.kind, nodes=entry.nodes, reason=reason, until=until)
    return _record(entry, NeedAct.Verb.SNOOZE, act, actor=actor, reason=reason, now=now, until=until)


def note(entry: Entry, *, text: str, actor: str, now: datetime) -> NeedAct:
    """Adds a note. Raises FieldError if it is empty."""
    if not text.strip():
        raise FieldError("text", reasons.of("value_empty"))
    act = audit.NeedNoted(need=entry.id, kind=entry.kind, nodes=entry.nodes, reason=text)
    return _record(entry, NeedAct.Verb.NOTE, act, actor=actor, reason=text, now=now)


def prune(*, now: datetime) -> int:
    """Deletes old acts. Returns how many; the audit log keeps them."""
    return NeedAct.objects.filter(at__lt=retention.before(NeedAct, now=now)).delete()[0]


def _record(
    entry: Entry,
    verb: NeedAct.Verb,
    act: audit.NeedAct,
    *,
    actor: str,
    reason: str,
    now: datetime,
    assignee: str = "",
    until: datetime | None = None,
) -> NeedAct:
    with transaction.atomic():
        made = NeedAct.objects.create(
            cluster=entry.cluster,
            need=entry.id,
            verb=verb,
            by=actor,
            at=now,
            members=list(entry.members),
            severity=entry.severity,
            assignee=assignee,
            until=until,
            text=reason,
        )
        ledger.record(entry.cluster.name, act, actor=actor, now=now)
        doorbell.publish("need", made.pk)
    return made
