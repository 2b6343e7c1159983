"""The actions of a rule: which there are, what attributes each takes, what it needs beside it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from kcover import waits
from kcover.policy.document.faults import WORD
from kcover.policy.document.notes import LABEL_KEY, LABEL_VALUE, Notes, meant, quoted
from kcover.policy.document.values import KCOVER, Action, Path
from kcover.quoting import plain, shown

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TEXT, URL = 500, 1000  # characters
CHANNEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SPACE = re.compile(r"[\s\x00-\x1f]")

Refusal = Callable[[str], str | None]


def _wait(value: str) -> str | None:
    try:
        waits.parse(value)
    except waits.WaitError as error:
        return str(error)
    return None


def _truth(value: str) -> str | None:
    return None if value in ("true", "false") else f'unCordon must be "true" or "false", not "{plain(value)}"'


def _effect(value: str) -> str | None:
    return None if value in TAINT_EFFECTS else f"unknown effect {shown(value)}: use one of {', '.join(TAINT_EFFECTS)}"


def _key(what: str) -> Refusal:
    return lambda value: None if LABEL_KEY.fullmatch(value) else f"{shown(value)} is no {what} key"


def _value(what: str) -> Refusal:
    return lambda value: (
        None if LABEL_VALUE.fullmatch(value.replace("<code>", "0")) else f"{shown(value)} is no {what} value"
    )


def _channel(value: str) -> str | None:
    return None if CHANNEL.fullmatch(value) else f'{shown(value)} is no name of a channel: write "on-call" for example'


def _text(value: str) -> str | None:
    return None if 0 < len(value) <= TEXT else f"a message has 1 to {TEXT} characters"


def _url(value: str) -> str | None:
    example = "write https://repair.example/hook for example"
    if len(value) > URL or SPACE.search(value):
        return f"an address has at most {URL} characters and no spaces: {example}"
    parts = _web_address(value)
    if parts is None:
        return f"{shown(value)} is no address: {example}"
    if parts.username or parts.password:
        return "no password in an address: everybody who reads the policy would read it"
    return None


def _web_address(value: str) -> SplitResult | None:
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - raises ValueError where it is no port
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None


def _checks(value: str) -> str | None:
    names = value.split(",")
    if all(WORD.fullmatch(name) for name in names) and len(set(names)) == len(names):
        return None
    example = 'write their names with commas and no spaces, "pciebw,remapped" for example'
    return f"{shown(value)} is no list of checks: {example}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionKind:
    """What may be said of one action.

    ``attributes``: each with what refuses its value. ``required``: attributes that must be there. ``needs``: groups of
    actions, one of each group must be beside it. ``excludes``: what makes no sense beside it, and why.
    """

    attributes: Mapping[str, Refusal] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    needs: tuple[tuple[str, ...], ...] = ()
    excludes: Mapping[str, str] = field(default_factory=dict)
    own: bool = True  # kcover.io/v1 only


# KCE's five first, in the order of its help page; preconditions are those of its table of actions.
ACTIONS: Mapping[str, ActionKind] = {
    "cordon": ActionKind(own=False),
    "drain": ActionKind(own=False, attributes={"waittime": _wait}),
    "reboot": ActionKind(own=False, attributes={"waittime": _wait, "unCordon": _truth}, needs=(("drain",),)),
    "enableWarmStandby": ActionKind(own=False, needs=(("cordon", "drain", "reboot"),)),
    "unCordon": ActionKind(own=False, needs=(("reboot", "gpuReset"),)),
    "taint": ActionKind(attributes={"key": _key("taint"), "value": _value("taint"), "effect": _effect}),
    "label": ActionKind(attributes={"key": _key("label"), "value": _value("label")}, required=("key",)),
    "gpuReset": ActionKind(
        attributes={"unCordon": _truth},
        needs=(("drain",),),
        excludes={"reboot": "a reboot resets the GPUs as well"},
    ),
    "restartJobs": ActionKind(needs=(("cordon", "drain"),)),  # else their pods may come back to the node
    "notify": ActionKind(attributes={"channel": _channel, "message": _text}),
    "webhook": ActionKind(attributes={"url": _url, "waittime": _wait}, required=("url",)),
    "runChecks": ActionKind(attributes={"checks": _checks}),
}
OWN_MARKS = "kcover.io/"  # label keys that the portal itself keeps (interfaces section 6)


def read(rule: dict[Any, Any], at: Path, notes: Notes) -> tuple[Action, ...]:
    """Reads ``actions`` of a rule, and what each needs beside it."""
    value = rule.get("actions")
    if value is None:
        return (Action(name="cordon"),)  # KCE: the global rule's default is cordon on
    if not isinstance(value, list):
        notes.problem(at, "actions is a list of mappings with a name")
        return ()
    placed: list[tuple[int, Action]] = []
    for index, item in enumerate(value):
        action = _action(item, (*at, index), notes)
        if action is None:
            continue
        if any(other.name == action.name for _, other in placed):
            notes.problem((*at, index, "name"), f"{action.name} is named twice")
        placed.append((index, action))
    names = [action.name for _, action in placed]
    for index, action in placed:
        _beside(action, names, (*at, index, "name"), notes)
    return tuple(action for _, action in placed)


def _action(item: object, at: Path, notes: Notes) -> Action | None:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        notes.problem(at, "an action is a mapping with a name")
        return None
    name = item["name"]
    kind = ACTIONS.get(name)
    if kind is None or (kind.own and not notes.own):
        known = [one for one, kind in ACTIONS.items() if notes.own or not kind.own]
        unknown = f"unknown action {shown(name)}: use one of {', '.join(known)}{meant(name, known)}"
        notes.problem((*at, "name"), unknown if kind is None else f"action {name} needs apiVersion: {KCOVER}")
        return None
    notes.only(item, ("name", "attribute"), at)
    attribute = item.get("attribute")
    if attribute is not None and not isinstance(attribute, dict):
        notes.problem((*at, "attribute"), "attribute is a mapping")
        return Action(name=name)
    for key in kind.required:
        if key not in (attribute or {}):
            notes.problem((*at, "name"), f"{name} needs the attribute {key}")
    return Action(name=name, attribute=_attribute(name, kind, attribute or {}, (*at, "attribute"), notes))


def _attribute(name: str, kind: ActionKind, attribute: dict[Any, Any], at: Path, notes: Notes) -> dict[str, str]:
    read: dict[str, str] = {}
    for key, value in attribute.items():
        where = (*at, key)
        if key == "waittime" and key not in kind.attributes and value == "":
            continue  # KCE's API sends it with every action
        if key not in kind.attributes:
            takes = f"takes {', '.join(kind.attributes)}" if kind.attributes else "takes no attribute"
            notes.problem(where, f"{name} has no attribute {shown(key)}: it {takes}")
        elif not isinstance(value, str):
            notes.problem(where, f"{key} must be a string: {quoted(key, value)}")
        elif (refusal := kind.attributes[key](value)) is not None:
            notes.problem(where, refusal)
        elif name == "label" and key == "key" and value.startswith(OWN_MARKS):
            notes.problem(where, f"labels that begin with {OWN_MARKS} are the portal's own: use another name")
        else:
            read[key] = value
    return read


def _beside(action: Action, names: list[str], at: Path, notes: Notes) -> None:
    """What the action needs, and what it does not bear, among the rule's actions."""
    kind = ACTIONS[action.name]
    for group in kind.needs:
        useful = [name for name in group if notes.own or not ACTIONS[name].own]
        if not set(useful) & set(names):
            choice = " or ".join((", ".join(useful[:-1]), useful[-1])) if len(useful) > 1 else useful[0]
            notes.problem(at, f"{action.name} needs {choice}: add {useful[0]} before it")
    for other, why in kind.excludes.items():
        if other in names:
            notes.problem(at, f"{action.name} and {other} in one rule: {why}, take out one of the two")
