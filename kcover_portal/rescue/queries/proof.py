"""The proof of a rescue: a small signed document that a stranger can verify (``tools/verify_proof.py``).

It contains the entries of the rescue with their place in the chain, the facts of its decision and all rules in force at
that time. Entries of others are present as their rescue and the digest of their content only.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet

from kcover import audit
from kcover.decisions import match
from kcover.plans import lifecycle
from kcover.values import digests
from kcover_portal.ledger import queries as ledger, signatures
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.models import Rescue, Step

KIND = "kcover.io/rescue-proof/v2"
MAX_DIGESTS = 2_000  # of entries of others; longer runs are left out, so that a proof stays small
# Entries after the last one of the rescue. Heads are published every minute, so one of these is a published head.
ENTRIES_AFTER_END = timedelta(minutes=2)
MAX_ENTRIES_AFTER_END = 2_000

OPENING_VERBS = tuple(map(audit.DecisionMade.verb_of, (audit.DecisionAnswer.RESCUE, audit.DecisionAnswer.APPROVE)))

Json = dict[str, Any]


class NoEntries(LookupError):
    """The audit log has no opening of the rescue."""


def signed(rescue: Rescue) -> Json:
    """``{"proof", "key_id", "signature"}``. Raises NoEntries, and SigningKeyUnusable if there is no signing key."""
    proof = unsigned(rescue)
    made = signatures.sign(digests.canonical(proof))
    return {"proof": proof, "key_id": made.key_id, "signature": made.signature}


def unsigned(rescue: Rescue) -> Json:
    """The statements of the proof. Raises NoEntries."""
    rows, entries = _at_one_moment(rescue)
    decision = rescue.decision
    return {
        "kind": KIND,
        "rescue": {
            "id": rescue.pk,
            "cluster": rescue.cluster.name,
            "node": rescue.node.name,
            "state": rescue.state if rescue.state in lifecycle.CLOSED_RESCUE else "open",
            **rows,
        },
        "policy": _policy(rescue),
        "facts": decision.facts if decision is not None else None,
        "rules": _rules(decision.facts) if decision is not None else [],
        "segment": _segment(rescue.cluster.name, entries),
    }


def _at_one_moment(rescue: Rescue) -> tuple[Json, list[Entry]]:
    """The own rows of the rescue, and its entries. They agree: both are read again if the rows changed meanwhile."""
    rows = _rows(rescue)
    while True:
        entries, before = _entries(rescue), rows
        rows = _rows(rescue)
        if rows == before:
            return rows, entries


def _rows(rescue: Rescue) -> Json:
    """The states of its steps, and the last vote of each person about a plan and a step."""
    steps = rescue.steps.order_by("index").values_list("name", "state")
    votes = rescue.approvals.order_by("pk").values("step", "plan_hash", "by", "approved", "at")
    begun = (Step.State.RUNNING, Step.State.WAITING)
    return {
        "steps": [
            {"name": name, "state": Step.State.PENDING.value if state in begun else state} for name, state in steps
        ],
        "votes": [{**vote, "at": vote["at"].isoformat()} for vote in votes],
    }


def _entries(rescue: Rescue) -> list[Entry]:
    """The entry of the decision, if there is one, and all entries of the rescue."""
    cluster = rescue.cluster.name
    own = list(Entry.objects.filter(cluster=cluster, rescue=rescue.pk).order_by("sequence"))
    if not own:
        raise NoEntries(f"the audit log of cluster {cluster!r} has no rescue {rescue.pk}")
    if rescue.decision_id is None:
        return own
    decided = ledger.timeline(cluster, node=rescue.node.name).filter(
        verb__in=OPENING_VERBS,
        sequence__lt=own[0].sequence,
        data__decision=rescue.decision_id,
    )
    return [*decided[:1], *own]


def _segment(cluster: str, entries: Sequence[Entry]) -> Json:
    """The part of the chain from the first of the entries to the last, and on to the next published head.

    ``named_from``: from this entry on, all name their rescue. Those before were written by an older portal.
    """
    omitted = _omitted([entry.sequence for entry in entries])
    shown = {entry.sequence for entry in entries}
    first, last = entries[0], entries[-1]
    links: list[Any] = []
    named_from, head = first.sequence, last.digest
    for entry in itertools.chain(_between(cluster, entries, omitted), _following(last)):
        count, named = omitted.get(entry.sequence), ledger.named(entry)
        is_named = entry.digest == ledger.link(entry.previous, digests.digest(named))
        if count is not None:
            links.append({"omitted": count, "digest": entry.previous})
        if entry.sequence in shown:
            links.append(ledger.content(entry))
        else:
            links.append(named if is_named else named["content"])
        named_from, head = named_from if is_named else entry.sequence + 1, entry.digest
    return {
        "cluster": cluster,
        "first": first.sequence,
        "previous": first.previous,
        "named_from": named_from,
        "links": links,
        "head": head,
    }


def _following(last: Entry) -> Iterator[Entry]:
    """The entries of the two minutes after the last entry of the rescue, in order."""
    rows = Entry.objects.filter(cluster=last.cluster, sequence__gt=last.sequence).order_by("sequence")[
        :MAX_ENTRIES_AFTER_END
    ]
    return itertools.takewhile(lambda entry: entry.at <= last.at + ENTRIES_AFTER_END, rows.iterator())


def _omitted(own: Sequence[int]) -> dict[int, int]:
    """The longest runs of entries of others that exceed the bound: the number of each by the entry that follows."""
    gaps = sorted((after - before - 1, after) for before, after in itertools.pairwise(own))
    total, omitted = sum(count for count, _ in gaps), {}
    while total > MAX_DIGESTS:
        count, after = gaps.pop()
        omitted[after] = count
        total -= count
    return omitted


def _between(cluster: str, entries: Sequence[Entry], omitted: dict[int, int]) -> Iterator[Entry]:
    """The entries from the first to the last that are not left out, in order."""
    rows: QuerySet[Entry] = Entry.objects.filter(cluster=cluster).order_by("sequence")
    start = entries[0].sequence
    for end, count in sorted(omitted.items()):
        yield from rows.filter(sequence__gte=start, sequence__lt=end - count)
        start = end
    yield from rows.filter(sequence__gte=start, sequence__lte=entries[-1].sequence)


def _rules(facts: Json) -> list[Json]:
    """All rules that were in force when the facts were gathered."""
    given: list[Json] | None = facts.get("given")
    if given is not None:
        return given
    found: list[match.Candidate] = []
    for revision in facts.get("rules", ()):
        found += policies.candidates_of(revision["policy"], revision["revision"])
    told = match.to_json(found)
    if digests.digest(told) == facts.get("candidates"):
        return told
    # An older portal ranked the rules of objects like its own.
    return match.to_json(replace(one, added=False) for one in found)


def _policy(rescue: Rescue) -> Json | None:
    """The text of the policy by which the rescue was opened, as its author wrote it."""
    row = policies.revision_numbered(rescue.policy, rescue.revision) if rescue.revision else None
    return {"name": rescue.policy, "revision": row.number, "text": row.text} if row is not None else None
