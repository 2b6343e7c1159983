"""Taking in policies: YAML with line-exact mistakes, revisions that never change, all documents of a text or none.

A policy's new text becomes a revision only where it says something else than the one in force.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max

from kcover.policy import document
from kcover_portal import doorbell
from kcover_portal.ledger import services as ledger
from kcover_portal.policies import queries
from kcover_portal.policies.models import Policy, Revision
from kcover_portal.policies.services import advice, source
from kcover_portal.policies.services.source import Problem


@dataclass(frozen=True, slots=True)
class Parsed:
    """One policy of a text: its rules, the document as written, its own text."""

    policy: document.Policy
    document: Mapping[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text holds. With ``problems`` nothing of it can be applied; ``warnings`` hinder nothing."""

    policies: tuple[Parsed, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()


class Invalid(ValueError):
    """The text cannot be applied; ``problems`` says where and why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(f"line {p.line}, column {p.column}: {p.said}" for p in problems))
        self.problems = problems


class Conflict(Exception):
    """The policy in force is not the one that the author edited."""


class NotFound(LookupError):
    """There is no such policy or revision."""


def validate(text: str | bytes) -> Reading:
    """Reads a text with any number of policies and changes nothing.

    Problems are sorted by place. Warnings are given only for a text without problems: they weigh its rules against each
    other and against those in force (one query).
    """
    try:
        documents, problems = source.read(source.decode(text))
    except source.Unreadable as error:
        return Reading((), (error.problem,))
    parsed = []
    places: dict[str, source.Document] = {}
    for one in documents:
        try:
            policy = document.read(one.content)
        except document.PolicyInvalid as error:
            problems += [_placed(one, problem.path, problem.message) for problem in error.problems]
            continue
        if policy.name in places:
            first = places[policy.name].at(("metadata", "name"))[0]
            problems.append(
                _placed(one, ("metadata", "name"), f"policy {policy.name} is named twice: first in line {first}")
            )
            continue
        places[policy.name] = one
        parsed.append(Parsed(policy, one.content, one.text))
    if not documents and not problems:
        problems.append(Problem(1, 1, "", "there is no policy in this text"))
    if problems:
        return Reading(tuple(parsed), tuple(sorted(set(problems))))
    said = advice.weigh([one.policy for one in parsed], in_force=queries.candidates())
    warnings = {_placed(places[one.policy], one.path, one.message) for one in said}
    return Reading(tuple(parsed), (), tuple(sorted(warnings)))


def apply(
    text: str | bytes,
    *,
    author: str,
    reason: str,
    now: datetime,
    name: str | None = None,
    expected: int | None = None,
) -> list[Policy]:
    """Puts every policy of the text in force, or none; returns them in the text's order, changed or not.

    ``name``: the text must hold this one policy only. ``expected``: its revision number must still be this one (0: not
    in force). Raises Invalid, or Conflict when it is not or somebody else is faster.
    """
    reading = validate(text)
    if reading.problems:
        raise Invalid(reading.problems)
    names = [one.policy.name for one in reading.policies]
    if name is not None and names != [name]:
        message = f"the text must hold the policy {name} and nothing else: it holds {', '.join(names)}"
        raise Invalid((Problem(1, 1, "metadata.name", message),))
    with transaction.atomic():
        rows = _locked(names, now=now)
        if expected is not None:
            _expect(rows[names[0]], expected)
        for one in reading.policies:
            _revise(rows[one.policy.name], one, author=author, reason=reason, now=now)
    return [rows[name] for name in names]


def rollback(name: str, number: int, *, author: str, reason: str, now: datetime, expected: int | None = None) -> Policy:
    """Puts an earlier revision's text in force again, as a new revision.

    Raises NotFound, Conflict, or Invalid when this version no longer carries that text out.
    """
    old = Revision.objects.filter(policy__name=name, number=number).first()
    if old is None:
        raise NotFound(f"policy {name} has no revision {number}")
    why = f"back to revision {number}" + (f": {reason}" if reason else "")
    return apply(old.text, author=author, reason=why, now=now, name=name, expected=expected)[0]


def delete(name: str, *, author: str, reason: str, now: datetime, expected: int | None = None) -> None:
    """Takes a policy out of force; its revisions stay, and a plan under way goes on (it is a snapshot).

    Raises NotFound or Conflict.
    """
    with transaction.atomic():
        row = Policy.objects.select_for_update().filter(name=name, revision__gt=0).first()
        if row is None:
            raise NotFound(f"there is no policy {name}")
        if expected is not None:
            _expect(row, expected)
        was, row.revision = row.revision, 0
        row.save(update_fields=["revision"])
        data = {"revision": was, "reason": reason}
        ledger.write("", actor=author, verb="policy.deleted", subject=f"policy {name}", now=now, data=data)
        doorbell.tell("policy", row.pk)


def export() -> str:
    """Every policy in force as one text that can be applied again."""
    return "---\n".join(revision.text for revision in queries.in_force())


def _locked(names: list[str], *, now: datetime) -> dict[str, Policy]:
    """The policies' rows, made where missing, locked in one order so that two authors never wait for each other."""
    for name in sorted(names):
        Policy.objects.get_or_create(name=name, defaults={"created_at": now})
    rows = Policy.objects.select_for_update().filter(name__in=names).order_by("name")
    return {row.name: row for row in rows}


def _expect(row: Policy, expected: int) -> None:
    if row.revision != expected:
        have = f"revision {row.revision} is in force" if row.revision else "it is not in force"
        wanted = f"revision {expected}" if expected else "no policy yet"
        raise Conflict(f"you edited {wanted} of {row.name}, and {have}: look at it and apply again")


def _revise(row: Policy, parsed: Parsed, *, author: str, reason: str, now: datetime) -> None:
    """Adds a revision and puts it in force, unless the one in force says the same."""
    current = row.revisions.filter(number=row.revision).first()
    if current is not None and current.document == parsed.document:
        return
    newest = row.revisions.aggregate(newest=Max("number"))["newest"] or 0
    row.revisions.create(
        number=newest + 1, text=parsed.text, document=parsed.document, author=author, reason=reason[:500], at=now
    )
    row.revision = newest + 1
    row.save(update_fields=["revision"])
    ledger.write(
        "",
        actor=author,
        verb="policy.applied",
        subject=f"policy {row.name}",
        now=now,
        data={"revision": row.revision, "reason": reason, "document": dict(parsed.document)},
    )
    doorbell.tell("policy", row.pk)


def _placed(one: source.Document, path: source.Path, message: str) -> Problem:
    line, column = one.at(path)
    return Problem(line, column, source.spell(path), message)
