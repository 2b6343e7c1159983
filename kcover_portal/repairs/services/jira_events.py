"""The webhooks of Jira about the issues of repairs: who may send them, and how states of issues become acts."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from kcover import actors, reasons
from kcover.repairs import jira, repairs, ticket_text, vendor_events
from kcover.repairs.vendor_events import SCOPES
from kcover.values.quote import short_text
from kcover_portal.audit_stream import queries as audit_stream
from kcover_portal.audit_stream.models import Issue, Sink
from kcover_portal.audit_stream.queries import vendors
from kcover_portal.lib import outgoing
from kcover_portal.repairs.models import Repair
from kcover_portal.repairs.services import deliveries, desk, moves
from kcover_portal.repairs.services.deliveries import Delivery
from kcover_portal.repairs.services.vendor_events import EventForbidden, RepairUnknown, Signed, count_failure

SIGNATURE: Final = "X-Hub-Signature"
OLDEST: Final = timedelta(days=1)  # Jira repeats a webhook for at most half an hour; answers are kept for longer
AHEAD: Final = timedelta(minutes=5)
MAX_ASSIGNEE: Final = 200  # characters
NO_SECRET: Final = "0" * 32  # an unknown sink costs the same computation
MOVED: Final = "jira:issue_updated"  # the only event that can change the state of an issue


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """What the portal reads of a webhook. ``state``: the name of the issue's state; ``moved``: whether it is new.

    ``number``: Jira's id of the issue, which stays when it is moved to another project; "" if the webhook has none.
    """

    event: str
    at: datetime
    issue: str
    state: str
    moved: bool
    assignee: str = ""
    number: str = ""


def authenticate(request: Signed, *, now: datetime) -> Sink:
    """The sink whose Jira signed the request. Raises EventForbidden, Throttled and SecretUnreadable."""
    sink = audit_stream.receiving(request.name, Sink.Kind.JIRA)
    secret = sink.incoming_key if sink is not None else NO_SECRET
    if not outgoing.signed(secret, request.body, request.signature) or sink is None:
        count_failure(request.name, address=request.address, exists=sink is not None, now=now)
        raise EventForbidden(reasons.of("jira_signature_invalid", header=SIGNATURE))
    return sink


def take(sink: Sink, webhook: Webhook, *, digest: str, now: datetime) -> dict[str, Any]:
    """Takes the repair to the state that the issue's new state means. Returns the answer.

    A webhook without such a state changes nothing. Raises EventForbidden for one that is too old, RepairUnknown for an
    issue of nothing, and RepairRefused if the repair's state does not allow it.
    """
    if not -AHEAD <= now - webhook.at <= OLDEST:
        away, limit = reasons.span(abs(now - webhook.at)), reasons.span(OLDEST)
        raise EventForbidden(reasons.of("vendor_timestamp_stale", timestamp="timestamp", span=away, limit=limit))
    row = audit_stream.issue_of(sink, webhook.issue, number=webhook.number)
    repair = Repair.objects.filter(pk=row.repair).first() if row is not None else None
    if repair is None or not vendors.may_change(sink, repair.vendor):
        raise RepairUnknown(reasons.of("jira_issue_unknown", issue=short_text(webhook.issue), sink=sink.name))
    if row is not None:
        _follow(sink, row, repair, webhook, now=now)
    target = jira.read_states(sink.options.get("states", "")).get(webhook.state.casefold())
    if webhook.event != MOVED or not webhook.moved or target is None:
        return {"delivery": digest, "repair": repair.pk, "state": str(repair.state), "acts": []}
    # Jira's own id of a delivery is not signed, so it counts for nothing.
    delivery = Delivery(name=digest, digest=digest, repair=repair.pk, event="jira")
    earlier = deliveries.earlier(sink, delivery)
    if earlier is not None:
        return earlier
    return deliveries.once(sink, delivery, lambda: _carry_out(sink, webhook, repair, target, now=now), now=now)


def _follow(sink: Sink, row: Issue, repair: Repair, webhook: Webhook, *, now: datetime) -> None:
    """Notes the id of an issue, and the key that it has in another project: also as the ticket, where that was its key.

    The webhook of a move may be late, so one that is older than the newest change may bring back the earlier key; Jira
    finds the issue by each.
    """
    if webhook.number and not row.number:
        Issue.objects.filter(pk=row.pk, number="").update(number=webhook.number)
    if row.key == webhook.issue:
        return
    with transaction.atomic():
        locked = moves.locked(repair.pk)
        if locked.ticket == row.key and locked.state != Repair.State.CLOSED:
            said = f"Jira issue {row.key} is now {webhook.issue}"
            desk.change(locked, {"ticket": webhook.issue}, actor=actors.vendor(sink.name), reason=said, now=now)
        Issue.objects.filter(pk=row.pk, key=row.key).update(key=webhook.issue)


def _carry_out(
    sink: Sink, webhook: Webhook, repair: Repair, target: repairs.State, *, now: datetime
) -> tuple[Repair, dict[str, Any]]:
    row = moves.locked(repair.pk)
    if not vendors.may_change(sink, row.vendor):
        raise RepairUnknown(reasons.of("jira_issue_unknown", issue=short_text(webhook.issue), sink=sink.name))
    actor, acts = actors.vendor(sink.name), []
    said = ticket_text.one_line(f"{webhook.issue}: {webhook.state}", most=200)
    for event in vendor_events.towards(row.stage, target):
        if refusal := vendor_events.refusal(row.stage, event):
            raise moves.RepairRefused(refusal)
        move = SCOPES[event].move
        assert move is not None  # towards() names only events that change the state
        named = bool(webhook.assignee) and not webhook.assignee.startswith(repairs.ROLE_OWNER)
        owner = {"assignee": webhook.assignee} if move is repairs.Move.ACCEPT and named else {}
        row = desk.act(row, move, owner, actor=actor, reason=said, now=now)
        acts.append(event.value)
    return row, {"acts": acts}


def note_keys(*, now: datetime) -> int:
    """Writes the keys of new issues into their repairs as the ticket, unless they have one. Returns how many."""
    return sum(_note(row, now=now) for row in Issue.objects.filter(noted=False).exclude(key="").select_related("sink"))


def _note(row: Issue, *, now: datetime) -> bool:
    with transaction.atomic():
        # Locked: a person may enter a ticket or close the repair at this moment.
        opened = Repair.objects.filter(pk=row.repair, ticket="").exclude(state=Repair.State.CLOSED)
        repair = opened.select_for_update().first()
        known = repair is not None and vendors.may_change(row.sink, repair.vendor)
        if repair is not None and known:
            actor = actors.vendor(row.sink.name)
            desk.change(repair, {"ticket": row.key}, actor=actor, reason=f"Jira issue {row.key}", now=now)
        Issue.objects.filter(pk=row.pk, key=row.key).update(noted=True)
    return known
