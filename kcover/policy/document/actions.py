"""The actions of a rule, read and held against each other; what each may say is its ``PolicyAction``."""

from typing import Any

from kcover.actions import PolicyAction, in_policies
from kcover.policy.document.model import KCOVER, Action, Path
from kcover.policy.document.problem_collector import ProblemCollector, did_you_mean, quoting_hint
from kcover.quote import short_repr


def read(rule: dict[Any, Any], at: Path, problems: ProblemCollector) -> tuple[Action, ...]:
    """Reads ``actions`` of a rule, and what each needs beside it."""
    value = rule.get("actions")
    if value is None:
        return (Action(name="cordon"),)  # KCE: the global rule's default is cordon on
    if not isinstance(value, list):
        problems.add(at, "actions is a list of mappings with a name")
        return ()
    placed: list[tuple[int, Action]] = []
    for index, item in enumerate(value):
        action = _action(item, (*at, index), problems)
        if action is None:
            continue
        if any(other.name == action.name for _, other in placed):
            problems.add((*at, index, "name"), f"{action.name} is named twice")
        placed.append((index, action))
    names = [action.name for _, action in placed]
    for index, action in placed:
        _beside(action, names, (*at, index, "name"), problems)
    return tuple(action for _, action in placed)


def _action(item: object, at: Path, problems: ProblemCollector) -> Action | None:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        problems.add(at, "an action is a mapping with a name")
        return None
    name = item["name"]
    kinds = in_policies()
    kind = kinds.get(name)
    if kind is None or (kind.own and not problems.own):
        known = [one for one, kind in kinds.items() if problems.own or not kind.own]
        unknown = f"unknown action {short_repr(name)}: use one of {', '.join(known)}{did_you_mean(name, known)}"
        problems.add((*at, "name"), unknown if kind is None else f"action {name} needs apiVersion: {KCOVER}")
        return None
    problems.check_keys(item, ("name", "attribute"), at)
    attribute = item.get("attribute")
    if attribute is not None and not isinstance(attribute, dict):
        problems.add((*at, "attribute"), "attribute is a mapping")
        return Action(name=name)
    for key in kind.required:
        if key not in (attribute or {}):
            problems.add((*at, "name"), f"{name} needs the attribute {key}")
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
            takes = f"takes {', '.join(kind.attributes)}" if kind.attributes else "takes no attribute"
            problems.add(where, f"{name} has no attribute {short_repr(key)}: it {takes}")
        elif not isinstance(value, str):
            problems.add(where, f"{key} must be a string: {quoting_hint(key, value)}")
        elif (refusal := kind.attributes[key](value)) is not None:
            problems.add(where, refusal)
        else:
            read[key] = value
    return read


def _beside(action: Action, names: list[str], at: Path, problems: ProblemCollector) -> None:
    """What the action needs, and what it does not bear, among the rule's actions."""
    kinds = in_policies()
    kind = kinds[action.name]
    for group in kind.needs:
        useful = [name for name in group if problems.own or not kinds[name].own]
        if not set(useful) & set(names):
            choice = " or ".join((", ".join(useful[:-1]), useful[-1])) if len(useful) > 1 else useful[0]
            problems.add(at, f"{action.name} needs {choice}: add {useful[0]} before it")
    for other, why in kind.excludes.items():
        if other in names:
            problems.add(at, f"{action.name} and {other} in one rule: {why}, take out one of the two")
