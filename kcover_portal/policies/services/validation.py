"""Reading a text with any number of policies: what it says, every mistake and every surprise by line."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kcover.decisions import match
from kcover.policy import document
from kcover_portal.policies import queries
from kcover_portal.policies.models import Policy
from kcover_portal.policies.services import advice, source
from kcover_portal.policies.services.source import Problem

YOUNGEST = datetime.max.replace(tzinfo=UTC)  # what is not in force yet is younger than all that is


@dataclass(frozen=True, slots=True)
class Parsed:
    """One policy of a text: what it means, the document as written, its own text."""

    policy: document.Policy | document.StandbyPolicy
    document: Mapping[str, Any]
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """The identity of a policy: (kind, name)."""
        return self.policy.kind, self.policy.name


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text holds. With ``problems`` nothing of it can be applied; ``warnings`` hinder nothing."""

    policies: tuple[Parsed, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()


class Invalid(ValueError):
    """The text cannot be applied; ``problems`` says where and why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(f"line {p.line}, column {p.column}: {p.text}" for p in problems))
        self.problems = problems


def validate(text: str | bytes) -> Reading:
    """Reads a text with any number of policies and changes nothing.

    Problems are sorted by place; a rule that names an unknown channel is one. Warnings are given only
    for a text without problems: they weigh its rules against each other and against those in force.
    """
    try:
        documents, problems = source.read(source.decode(text))
    except source.Unreadable as error:
        return Reading((), (error.problem,))
    parsed: list[Parsed] = []
    places: dict[tuple[str, str], source.Document] = {}
    for one in documents:
        try:
            policy = document.read(one.content)
        except document.PolicyInvalid as error:
            problems += [_placed(one, problem.path, problem.message) for problem in error.problems]
            continue
        problems += [_placed(one, path, message) for path, message in _channels_missing(policy)]
        read = Parsed(policy, one.content, one.text)
        if read.key in places:
            first = places[read.key].at(("metadata", "name"))[0]
            problems.append(_named(one, f"policy {policy.name} is named twice: first in line {first}"))
            continue
        if message := _second_standby(policy, parsed):
            problems.append(_named(one, message))
        places[read.key] = one
        parsed.append(read)
    if not documents and not problems:
        problems.append(Problem(1, 1, "", "the text contains no policy"))
    if problems:
        return Reading(tuple(parsed), tuple(sorted(set(problems))))
    said = advice.weigh(candidates(parsed), fresh={policy.name for policy in _rescue_policies(parsed)})
    warnings = {_placed(places[queries.RESCUE, one.policy], one.path, one.message) for one in said}
    return Reading(tuple(parsed), (), tuple(sorted(warnings)))


def candidates(parsed: list[Parsed]) -> tuple[match.Candidate, ...]:
    """The rules as they would be in force with these policies applied; revision 0 marks the new ones."""
    fresh = _rescue_policies(parsed)
    names = {policy.name for policy in fresh}
    rows = Policy.objects.filter(kind=queries.RESCUE, name__in=names)
    ages = dict(rows.values_list("name", "created_at"))
    return (
        *(one for one in queries.candidates() if one.policy not in names),
        *(
            match.Candidate(policy=policy.name, revision=0, created_at=ages.get(policy.name, YOUNGEST), rule=rule)
            for policy in fresh
            for rule in policy.rules
        ),
    )


def draft(text: str | bytes) -> tuple[match.Candidate, ...]:
    """The rules that would be in force if the text were applied. Raises Invalid."""
    reading = validate(text)
    if reading.problems:
        raise Invalid(reading.problems)
    return candidates(list(reading.policies))


def _rescue_policies(parsed: list[Parsed]) -> list[document.Policy]:
    return [one.policy for one in parsed if isinstance(one.policy, document.Policy)]


def _channels_missing(policy: document.Policy | document.StandbyPolicy) -> list[tuple[source.Path, str]]:
    """Channels that the policy's rules name and nobody has made."""
    if not isinstance(policy, document.Policy):
        return []
    return [
        (("spec", "rules", rule.index, *problem.path), problem.message)
        for rule in policy.rules
        for problem in _channels(rule)
    ]


def _channels(rule: document.Rule) -> list[document.Problem]:
    """The same, of one rule; paths begin at the rule's own."""
    if not rule.channels:
        return []
    known = queries.channels()
    hint = f"use one of {', '.join(sorted(known))}" if known else "an admin creates channels on the Notifications page"
    return [
        document.Problem(("actions", index, "attribute", "channel"), f"unknown channel {name}; {hint}")
        for index, name in rule.channels
        if name not in known
    ]


def _second_standby(policy: document.Policy | document.StandbyPolicy, parsed: list[Parsed]) -> str | None:
    """Why this WarmStandbyPolicy is one too many, if it is."""
    if not isinstance(policy, document.StandbyPolicy):
        return None
    others = [one.policy.name for one in parsed if isinstance(one.policy, document.StandbyPolicy)]
    if others:
        return f"only one WarmStandbyPolicy is allowed; put these matches into {others[0]}"
    other = queries.policies(queries.STANDBY).exclude(name=policy.name).first()
    if other is not None:
        return f"only one WarmStandbyPolicy is allowed; {other.name} is active. Use its name or disable it"
    return None


def _named(one: source.Document, message: str) -> Problem:
    return _placed(one, ("metadata", "name"), message)


def _placed(one: source.Document, path: source.Path, message: str) -> Problem:
    line, column = one.at(path)
    return Problem(line, column, source.spell(path), message)
