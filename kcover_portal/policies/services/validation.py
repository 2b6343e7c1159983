"""Validates a text with any number of policies; returns errors and warnings by line."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from kcover import actions, reasons
from kcover.actions.moved_jobs import SOURCE
from kcover.decisions import match
from kcover.policy import document
from kcover.policy.document.model import CHANNEL
from kcover.reasons import Reason
from kcover_portal.policies import queries
from kcover_portal.policies.models import Policy
from kcover_portal.policies.services import advice, yaml_reader
from kcover_portal.policies.services.yaml_reader import Problem

YOUNGEST = datetime.max.replace(tzinfo=UTC)  # new policies are younger than all active ones


@dataclass(frozen=True, slots=True)
class ParsedPolicy:
    """A policy of a text: parsed, as a document, and as text."""

    policy: document.Policy | document.StandbyPolicy
    document: Mapping[str, Any]
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """The identity of a policy: (kind, name)."""
        return self.policy.kind, self.policy.name


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The content of a text. With ``problems`` it cannot be applied; ``warnings`` do not prevent that.

    ``places``: the documents of the policies, by their keys.
    """

    policies: tuple[ParsedPolicy, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()
    places: Mapping[tuple[str, str], yaml_reader.Document] = field(default_factory=dict, repr=False)


class InvalidPolicies(ValueError):
    """The text cannot be applied; ``problems`` says where and why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(f"line {p.line}, column {p.column}: {p.text}" for p in problems))
        self.problems = problems


def validate(text: str | bytes) -> ValidationResult:
    """``parse``, with warnings that compare the rules with each other and with the active ones.

    They are given only for a text without problems.
    """
    found = parse(text)
    if found.problems:
        return found
    fresh = _rescue_policies(found.policies)
    advices = advice.weigh(candidates(found.policies), fresh={policy.name for policy in fresh})
    places = found.places
    warnings = {_problem_at(places[queries.RESCUE, item.policy], item.path, item.reason) for item in advices}
    return replace(found, warnings=tuple(sorted(warnings)))


def parse(text: str | bytes) -> ValidationResult:
    """Reads a text with any number of policies and changes nothing.

    Problems are sorted by position; they include unknown channels and sources.
    """
    try:
        documents, problems = yaml_reader.read(yaml_reader.decode(text))
    except yaml_reader.Unreadable as error:
        return ValidationResult((), (error.problem,))
    documents = [expanded for item in documents for expanded in _expand(item)]
    names = queries.names()
    parsed: list[ParsedPolicy] = []
    places: dict[tuple[str, str], yaml_reader.Document] = {}  # by the policy's key
    for item in documents:
        content = document.without_server_fields(item.content)
        try:
            policy = document.read(content)
        except document.PolicyInvalid as error:
            problems += [_problem_at(item, problem.path, problem.reason) for problem in error.problems]
            continue
        refused = (*_names_missing(policy, names), *_refused_when_saved(policy))
        problems += [_problem_at(item, path, reason) for path, reason in refused]
        parsed_policy = ParsedPolicy(policy, content, item.text)
        if parsed_policy.key in places:
            first = places[parsed_policy.key].at(("metadata", "name"))[0]
            problems.append(_name_problem(item, reasons.of("policy_twice", policy=policy.name, line=first)))
            continue
        if second := _second_standby(policy, parsed):
            problems.append(_name_problem(item, second))
        places[parsed_policy.key] = item
        parsed.append(parsed_policy)
    if not documents and not problems:
        problems.append(Problem(1, 1, "", reasons.of("policies_missing")))
    if problems:
        return ValidationResult(tuple(parsed), tuple(sorted(set(problems))))
    return ValidationResult(tuple(parsed), (), places=places)


def candidates(parsed: Sequence[ParsedPolicy]) -> tuple[match.Candidate, ...]:
    """Returns the rules that would be active with these policies; revision 0 marks the new ones."""
    fresh = _rescue_policies(parsed)
    names = {policy.name for policy in fresh}
    rows = Policy.objects.filter(kind=queries.RESCUE, name__in=names)
    ages = dict(rows.values_list("name", "created_at"))
    return (
        *(candidate for candidate in queries.candidates() if candidate.policy not in names),
        *(
            match.Candidate(policy=policy.name, revision=0, created_at=ages.get(policy.name, YOUNGEST), rule=rule)
            for policy in fresh
            for rule in policy.rules
        ),
    )


def draft(text: str | bytes) -> tuple[match.Candidate, ...]:
    """Returns the rules that would be active if the text were applied. Raises InvalidPolicies."""
    validated = parse(text)
    if validated.problems:
        raise InvalidPolicies(validated.problems)
    return candidates(validated.policies)


def _expand(item: yaml_reader.Document) -> list[yaml_reader.Document]:
    """Returns the documents of a list as ``kubectl`` exports it, each with its own places; else the document itself."""
    found = document.items(item.content)
    if found is None:
        return [item]
    return [
        yaml_reader.Document(
            content=content,
            text=yaml.safe_dump(document.without_server_fields(content), sort_keys=False, allow_unicode=True),
            line=item.at(("items", index))[0],
            marks={path[2:]: mark for path, mark in item.marks.items() if path[:2] == ("items", index)},
        )
        for index, content in enumerate(found)
    ]


def _rescue_policies(parsed: Sequence[ParsedPolicy]) -> list[document.Policy]:
    return [item.policy for item in parsed if isinstance(item.policy, document.Policy)]


def _names_missing(
    policy: document.Policy | document.StandbyPolicy, names: Mapping[str, Collection[str]]
) -> Iterator[tuple[yaml_reader.Path, Reason]]:
    """Yields the unknown channels and sources that the policy's rules name, with their paths."""
    for rule in policy.rules if isinstance(policy, document.Policy) else ():
        for attribute, missing in _NAMED.items():
            known = names.get(attribute, ())
            for index, name in rule.named(attribute):
                if name not in known:
                    yield ("spec", "rules", rule.index, "actions", index, "attribute", attribute), missing(name, known)


def _refused_when_saved(
    policy: document.Policy | document.StandbyPolicy,
) -> Iterator[tuple[yaml_reader.Path, Reason]]:
    """Yields the attributes that a text must not have any more, with their paths."""
    syntax = actions.in_policies()
    for rule in policy.rules if isinstance(policy, document.Policy) else ():
        for index, action in enumerate(rule.actions):
            for attribute, refusal in syntax[action.name].when_saved.items():
                if (value := action.attribute.get(attribute)) is not None and (reason := refusal(value)):
                    yield ("spec", "rules", rule.index, "actions", index, "attribute", attribute), reason


def _unknown_channel(name: str, known: Collection[str]) -> Reason:
    if known:
        return reasons.of("rule_channel_unknown", channel=name, known=", ".join(sorted(known)))
    return reasons.of("rule_channel_none", channel=name)


def _unknown_source(name: str, known: Collection[str]) -> Reason:
    if known:
        return reasons.of("rule_source_unknown", source=name, known=", ".join(sorted(known)))
    return reasons.of("rule_source_none", source=name)


_NAMED: Final = {CHANNEL: _unknown_channel, SOURCE: _unknown_source}


def _second_standby(policy: document.Policy | document.StandbyPolicy, parsed: list[ParsedPolicy]) -> Reason | None:
    """Returns the problem if this would be a second WarmStandbyPolicy, else None."""
    if not isinstance(policy, document.StandbyPolicy):
        return None
    others = [item.policy.name for item in parsed if isinstance(item.policy, document.StandbyPolicy)]
    if others:
        return reasons.of("standby_policy_twice", policy=others[0])
    other = queries.policies(queries.STANDBY).filter(cluster=None).exclude(name=policy.name).first()
    if other is not None:
        return reasons.of("standby_policy_active", policy=other.name)
    return None


def _name_problem(document: yaml_reader.Document, reason: Reason) -> Problem:
    return _problem_at(document, ("metadata", "name"), reason)


def _problem_at(document: yaml_reader.Document, path: yaml_reader.Path, reason: Reason) -> Problem:
    line, column = document.at(path)
    return Problem(line, column, yaml_reader.spell(path), reason)
