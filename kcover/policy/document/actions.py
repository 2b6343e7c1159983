"""Parse the actions of a rule and check them against each other, by their ``PolicyAction``."""

from typing import Any

from kcover import reasons
from kcover.actions import PolicyAction, attributes, in_policies
from kcover.policy.document.model import KCOVER, Action, Path, Problem
from kcover.policy.document.problem_collector import ProblemCollector, did_you_mean, quoting_hint
from kcover.values import durations
from kcover.values.quote import short_repr


def read(rule: dict[Any, Any], at: Path, problems: ProblemCollector) -> tuple[Action, ...]:
    """Parse ``actions`` of a rule, and check which other actions each one needs."""
    value = rule.get("actions")
    if value is None:
        return (Action(name="cordon"),)  # KCE: the global rule's default is cordon on
    if not isinstance(value, list):
        problems.add(at, "actions_type")
        return ()
    placed: list[tuple[int, Action]] = []
    for index, item in enumerate(value):
        action = _action(item, (*at, index), problems)
        if action is None:
            continue
        if any(other.name == action.name for _, other in placed):
            problems.add((*at, index, "name"), "listed_twice", name=action.name)
        placed.append((index, action))
    names = [action.name for _, action in placed]
    for index, action in placed:
        _check_companions(action, names, rule, (*at, index, "name"), problems)
    return tuple(action for _, action in placed)


def _action(item: object, at: Path, problems: ProblemCollector) -> Action | None:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        problems.add(at, "action_type")
        return None
    name = item["name"]
    kinds = in_policies()
    kind = kinds.get(name)
    if kind is None or (kind.own and not problems.own):
        known = [action for action, kind in kinds.items() if problems.own or not kind.own]
        if kind is None:
            named = {"name": short_repr(name), "known": ", ".join(known)}
            problems.add((*at, "name"), "action_unknown", hint=did_you_mean(name, known), **named)
        else:
            problems.add((*at, "name"), "action_of_own_version", name=name, version=KCOVER)
        return None
    problems.check_keys(item, ("name", "attribute"), at)
    attribute = item.get("attribute")
    if attribute is not None and not isinstance(attribute, dict):
        problems.add((*at, "attribute"), "attribute_type")
        return Action(name=name)
    for key in kind.required:
        if key not in (attribute or {}):
            problems.add((*at, "name"), "attribute_missing", name=name, attribute=key)
    for key, other in kind.together.items():
        if key in (attribute or {}) and other not in (attribute or {}):
            problems.add((*at, "attribute", key), "attribute_alone", attribute=key, other=other)
    return Action(name=name, attribute=_attribute(name, kind, attribute or {}, (*at, "attribute"), problems))


def _attribute(
    name: str, kind: PolicyAction, attribute: dict[Any, Any], at: Path, problems: ProblemCollector
) -> dict[str, str]:
    read: dict[str, str] = {}
    for key, value in attribute.items():
        where = (*at, key)
        if key == "waittime" and key not in kind.attributes and value == "":
            continue  # KCE's API sends it with every action
        if key not in kind.attributes:
            named = {"name": name, "attribute": short_repr(key)}
            if kind.attributes:
                problems.add(where, "attribute_unknown", known=", ".join(kind.attributes), **named)
            else:
                problems.add(where, "attribute_unused", **named)
        elif not isinstance(value, str):
            problems.add(where, "not_a_string", key=key, instead=quoting_hint(key, value))
        elif (refusal := kind.attributes[key](value)) is not None:
            problems.found.append(Problem(where, refusal))
        else:
            read[key] = durations.kce_text(value) if kind.attributes[key] is attributes.wait else value
    return read


def _check_companions(
    action: Action, names: list[str], rule: dict[Any, Any], at: Path, problems: ProblemCollector
) -> None:
    """Check which actions the action needs, or which key of the rule instead, and which actions it excludes."""
    kinds = in_policies()
    kind = kinds[action.name]
    instead = [kind.needs_or] if kind.needs_or and problems.own else []
    for group in kind.needs:
        useful = [*(name for name in group if problems.own or not kinds[name].own), *instead]
        if not set(useful) & set(names) and not any(rule.get(key) is not None for key in instead):
            listed = [", ".join(useful[:-1]), useful[-1]] if len(useful) > 1 else useful
            problems.add(at, "companion_missing", name=action.name, needed=reasons.either(listed), first=useful[0])
    for other, why in kind.excludes.items():
        if other in names:
            problems.add(at, "actions_conflict", name=action.name, other=other, why=why)
