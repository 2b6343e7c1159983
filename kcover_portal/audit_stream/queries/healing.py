"""The topic ``healing``: one record for each rescue that ended, made from the audit log alone.

Its number is that of the entry that ended the rescue, so a record is visible once, in order, and never changes.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import Max, QuerySet

from kcover import audit, reasons
from kcover.values import masked_addresses
from kcover_portal.audit_stream.queries.topics import Record, Topic, register
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import RESCUE_ENDS, Entry

HEALING: Final = "healing"
MAX_RECORDS: Final = 50  # in one read: each record reads all entries of its rescue
VOTES: Final = (audit.RescueApproved.VERB, audit.RescueRejected.VERB)
CALLS: Final = frozenset(audit.ClusterCallBegun.verbs())


def _ends(cluster: str, after: int) -> QuerySet[Entry]:
    return Entry.objects.filter(cluster=cluster, sequence__gt=after, verb__in=RESCUE_ENDS)


def _heads() -> dict[str, int]:
    rows = Entry.objects.filter(verb__in=RESCUE_ENDS).order_by()
    return dict(rows.values("cluster").annotate(newest=Max("sequence")).values_list("cluster", "newest"))


def _count(cluster: str, after: int, newest: int) -> int:
    return _ends(cluster, after).filter(sequence__lte=newest).count()


def _read(cluster: str, after: int, most: int) -> list[Record]:
    return [_record(row) for row in _ends(cluster, after).order_by("sequence")[: min(most, MAX_RECORDS)]]


def _record(end: Entry) -> Record:
    """The record of the rescue that this entry ended. Times are ISO 8601 in UTC, durations in seconds."""
    entries = list(
        Entry.objects.filter(cluster=end.cluster, rescue=end.rescue, sequence__lte=end.sequence).order_by("sequence")
    )
    act = audit.from_entry(end)
    assert isinstance(act, audit.RescueEnded)
    document = {
        "cluster": end.cluster,
        "sequence": end.sequence,
        "at": _time(end.at),
        "rescue": end.rescue,
        "node": end.node,
        "state": act.state.value,
        "outcome": act.outcome,
        "needs_human": act.needs_human,
        "because": _reason(act.because),
        "votes": [{"verb": row.verb, "actor": row.actor, "at": _time(row.at)} for row in entries if row.verb in VOTES],
        "cluster_calls": sum(row.verb in CALLS for row in entries),
        **_course(entries, end),
        "digest": end.digest,
    }
    return Record(
        topic=HEALING, part=end.cluster, number=end.sequence, at=end.at, document=masked_addresses.mask(document)
    )


def _course(entries: Sequence[Entry], end: Entry) -> dict[str, Any]:
    """How the rescue began and what became of its steps; empty if the audit log does not have its beginning."""
    state = ledger.replay_entries(entries)
    if state is None:
        return {}
    opened = audit.from_entry(next(row for row in entries if row.verb == audit.RescueOpened.VERB))
    assert isinstance(opened, audit.RescueOpened)
    return {
        "verified": state.verified,
        "requested_by": state.requested_by,
        "rule": opened.rule,
        "revision": opened.revision,
        "plan_hash": state.plan_hash,
        "opened_at": _time(state.opened_at),
        "seconds": round((end.at - state.opened_at).total_seconds(), 3),
        "steps": [
            {
                "name": step.name,
                "state": step.state,
                "attempts": step.tries,
                "finished_at": _time(step.finished_at),
                "because": _reason(step.because),
            }
            for _, step in sorted(state.steps.items())
        ],
    }


def _time(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else None


def _reason(because: reasons.Reason | None) -> dict[str, Any] | None:
    """The code and parameters, for programs, with the English sentence."""
    return {**because.to_json(), "text": str(because)} if because else None


register(Topic(name=HEALING, heads=_heads, read=_read, count=_count))
