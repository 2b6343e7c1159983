"""Repairs as issues in Jira: one issue a repair, a comment for each later record, a transition at the end.

Jira has no idempotency keys. So an issue carries a label that follows from the sink and the repair, and a comment names
its record. What was asked for is stored before the call. After a lost answer the portal looks before it asks again.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings

from kcover import actors, reasons
from kcover.repairs import jira, ticket_text
from kcover.values import back_off
from kcover_portal.audit_stream.models import Issue, Sink
from kcover_portal.audit_stream.queries.topics import Record
from kcover_portal.audit_stream.senders.jira_client import NOT_FOUND, Client, JiraError

LABEL: Final = "kcover"  # of all issues
RECORD_SECONDS: Final = 30.0  # for all calls about one record
CLOSE_SECONDS: Final = 20.0  # for issues whose transition failed before
INDEXED_AFTER: Final = timedelta(minutes=2)  # Jira's search may not find a newer issue
FIRST_WAIT, MAX_WAIT = timedelta(seconds=30), timedelta(hours=1)  # between attempts to close an issue
DEFAULT_TYPE: Final = "Task"


def label_of(sink: Sink, repair: int) -> str:
    """The label of the repair's issue. It stays the same after a restore of the portal's database."""
    return f"{LABEL}-{sink.digest_of(str(repair))[:20]}"


def tell(sink: Sink, record: Record, *, now: datetime) -> None:
    """Tells Jira one record, once. Raises DeliveryError."""
    document = record.document
    row, _made = Issue.objects.get_or_create(sink=sink, repair=document["repair"])
    if record.number <= row.told:
        return
    ended = ticket_text.has_ended(document)
    client = _client(sink, RECORD_SECONDS)
    created = not row.key and _find(sink, row, record, client)
    if not row.key:
        if ended and row.asked_at is None:  # it ended before this sink had anything to tell
            _save(row, told=record.number)
            return
        _create(sink, row, record, client, now=now)
        created = True
    if not created and (ended or document["actor"] != actors.vendor(sink.name)):  # else Jira said so itself
        _comment(row, record, client)
    _save(row, told=record.number, closing=ended and bool(sink.options.get("close_transition")), attempts=0, problem={})
    if row.closing:
        _close(sink, row, client, now=now)


def close_due(sink: Sink, *, now: datetime) -> None:
    """Tries again to close the issues whose repair has ended. Failures are kept in the rows."""
    due = Issue.objects.filter(sink=sink, closing=True, due_at__lte=now).order_by("due_at")[:5]
    client: Client | None = None
    for row in due:
        client = client or _client(sink, CLOSE_SECONDS)
        _close(sink, row, client, now=now)


def _client(sink: Sink, seconds: float) -> Client:
    return Client(address=sink.address, user=sink.options.get("user", ""), token=sink.secret, seconds=seconds)


def _find(sink: Sink, row: Issue, record: Record, client: Client) -> bool:
    """Searches for the issue. Returns True if an attempt whose answer was lost has created it from this record."""
    jql = f'labels = "{label_of(sink, row.repair)}" ORDER BY created ASC'
    found = client.search(jql)
    if not found:
        return False
    created = row.asked_at is not None and row.begun == record.number
    key, number = found[0]
    _save(row, key=key, number=number[:30], noted=False, begun=record.number)
    return created


def _create(sink: Sink, row: Issue, record: Record, client: Client, *, now: datetime) -> None:
    """Creates the issue from the record. Raises JiraError, also while an earlier attempt may still come to light."""
    if row.asked_at is not None and (left := row.asked_at + INDEXED_AFTER - now) > timedelta(0):
        unsure = reasons.of("jira_issue_unsure", repair=str(row.repair), span=reasons.span(left))
        raise JiraError(unsure, arrived=False, wait=left.total_seconds())
    _save(row, asked_at=now, begun=record.number)
    try:
        key, number = client.create(_fields(sink, row, record.document))
    except JiraError as error:
        if not error.arrived:
            _save(row, asked_at=None)
        raise
    _save(row, key=key, number=number[:30], noted=False)


def _fields(sink: Sink, row: Issue, document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a new issue."""
    items = [f"{label}: {value}" for label, value in ticket_text.facts(document)]
    link = f"{settings.KCOVER_PUBLIC_URL}/repairs/{row.repair}/" if settings.KCOVER_PUBLIC_URL else ""
    return {
        "project": {"key": sink.options["project"]},
        "issuetype": {"name": sink.options.get("issue_type", DEFAULT_TYPE)},
        "summary": ticket_text.summary(document),
        "description": jira.document(ticket_text.headline(document), link, items=items),
        "labels": [LABEL, label_of(sink, row.repair), *sink.options.get("labels", "").split()],
    }


def _comment(row: Issue, record: Record, client: Client) -> None:
    """Adds the record as a comment, unless an earlier attempt did. Raises JiraError."""
    mark = str(record.line()["id"])
    try:
        if row.begun == record.number and any(mark in jira.texts(body).split() for body in client.comments(row.key)):
            return
        _save(row, begun=record.number)
        items = [f"{label}: {value}" for label, value in ticket_text.facts(record.document)]
        client.comment(row.key, jira.document(ticket_text.headline(record.document), f"Record {mark}", items=items))
    except JiraError as error:
        if error.status == NOT_FOUND:  # deleted, or hidden from the account: the next attempt finds or creates one
            _save(row, key="", number="", asked_at=None)
        raise


def _close(sink: Sink, row: Issue, client: Client, *, now: datetime) -> None:
    """Moves the issue by the transition of the sink. Keeps a failure in the row, with the next attempt."""
    try:
        _move(row, str(sink.options.get("close_transition", "")), client)
    except JiraError as error:
        if error.status == NOT_FOUND:  # nothing is left to close
            _save(row, closing=False, problem={}, due_at=None)
            return
        wait = back_off.doubled(row.attempts + 1, least=FIRST_WAIT, most=MAX_WAIT, asked=error.wait)
        _save(row, attempts=row.attempts + 1, problem=error.reason.to_json(), due_at=now + wait)
        return
    _save(row, closing=False, problem={}, due_at=None, attempts=0)


def _move(row: Issue, name: str, client: Client) -> None:
    state, done = client.state(row.key)
    if done or not name or (row.closes_to and state == row.closes_to):  # by a person, or by an attempt without answer
        return
    offered = client.transitions(row.key)
    found = next((one for one in offered if one.casefold() == name.casefold()), None)
    if found is None:
        known = ", ".join(offered) or "-"
        missing = reasons.of("jira_transition_missing", issue=row.key, state=state, name=name, known=known)
        raise JiraError(missing, arrived=False)
    transition, after = offered[found]
    _save(row, closes_to=after[:200])
    client.move(row.key, transition)


def _save(row: Issue, **columns: Any) -> None:
    for name, value in columns.items():
        setattr(row, name, value)
    row.save(update_fields=list(columns))
