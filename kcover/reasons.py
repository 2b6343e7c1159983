"""Reasons that can be said in any language: a code, what it speaks of, and one English sentence for each code.

A reason is kept and compared as data; ``str`` says it in English, ``say`` with the caller's translation of the
sentence. Strings and reasons among its parameters name things (a rule, a rescue, an end); whole numbers are measures,
and two reasons that differ in measures only are ``alike``: the same answer with newer figures.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from string import Formatter
from typing import Any, TypeAlias

Value: TypeAlias = "str | int | Reason"

TEXTS: Mapping[str, str] = {
    "text": "{text}",  # what an older version kept as a plain sentence
    # why no rule is asked
    "node_unknown": "the cluster {cluster} has no node {node}: its reports are kept, nothing is done to it",
    "node_without_gpus": "node {node} has no GPUs, and policies act on GPU workers only",
    "drill_recorded": "a program wrote this line (a drill), and this cluster only records drills",
    "left_to_external": "this cluster leaves every decision to an external system (decision_mode external)",
    # rules
    "no_policy": "no policy is in force",
    "rule_matches": "rule {rule} (priority {priority}) matches {kind} {code}",
    "rule_mismatch": "rule {rule} does not match: {why}",
    "code_and_labels_match": "code and labels match",
    "lists_xids": "it lists Xid codes, and this is a fault of kind {kind}",
    "lists_others": "it lists {listed}, not {code}",
    "names_others": "it names {named}, not {kind} {code}",
    "seen_too_seldom": "it wants {wanted} sightings within {within}, and there were {seen}",
    "means_xids": "it means Xid and SXid faults, not kind {kind}",
    "program_fault": "{kind} {code} is not a fault of the node, and only a rule that lists it matches",
    "not_catalogued": "{kind} {code} is in no catalogue, and only a rule that lists it matches",
    "no_label": "the node has none of {labels}",
    "not_all_labels": "the node has not all of {labels}",
    # what is weighed once a rule matches
    "excluded": "node {node} carries {label}=true: hands off",
    "paused": "everything is paused",
    "paused_because": "everything is paused: {why}",
    "rescue_open": "rescue {rescue} is open on this node, and a node has one rescue at a time",
    "left_to_people": "rescue {rescue} left this node to people: release it to let policies act again",
    "done_already": "rescue {rescue} did just this already, and the node is still isolated",
    "reboots_repeat": "{rescues} rescues rebooted this node in seven days: a person must look at it",
    "shadow": "shadow mode: this is what would have been done",
    "approve": "approve mode: a person must say yes first",
    "nothing_holds_back": "nothing holds it back",
}


def _fields(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)


FIELDS: Mapping[str, frozenset[str]] = {code: _fields(template) for code, template in TEXTS.items()}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, made by ``of``: ``code`` is in ``TEXTS``, ``params`` are the pairs that its sentence names."""

    code: str
    params: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return self.say(str)

    def say(self, translate: Callable[[str], str]) -> str:
        """The sentence in the language of ``translate`` (gettext for example), which gets the English template."""
        said = {name: value.say(translate) if isinstance(value, Reason) else value for name, value in self.params}
        return translate(TEXTS[self.code]).format_map(said)

    def to_json(self) -> dict[str, Any]:
        """``{"code", "params"}`` of plain JSON; a reason among the parameters has the same shape."""
        plain = {name: value.to_json() if isinstance(value, Reason) else value for name, value in self.params}
        return {"code": self.code, "params": plain}


def of(code: str, /, **params: Value) -> Reason:
    """The reason of that code. Raises KeyError for an unknown code, ValueError where the parameters are not those that
    its sentence names."""
    if FIELDS[code] != params.keys():
        raise ValueError(f"reason {code} speaks of {sorted(FIELDS[code])}, not of {sorted(params)}")
    return Reason(code, tuple(sorted(params.items())))


def from_json(data: object) -> Reason:
    """The reason that ``to_json`` made. Whatever else was kept (a plain sentence, a code of another version) becomes a
    ``text`` that says it as it is, because old records must stay readable."""
    match data:
        case {"code": str(code), "params": dict(params)} if FIELDS.get(code) == params.keys():
            return of(code, **{name: _value(value) for name, value in params.items()})
        case {"code": str(code), "params": dict(params)}:
            return of("text", text=" ".join([code, *(f"{name}={value}" for name, value in params.items())]))
    return of("text", text=str(data))


def _value(value: object) -> Value:
    return value if isinstance(value, str | int) else from_json(value)


def alike(some: Iterable[Reason], others: Iterable[Reason]) -> bool:
    """Whether both give the same reasons in the same order, figures apart."""
    return [_gist(one) for one in some] == [_gist(one) for one in others]


def _gist(reason: Reason) -> tuple[str, list[tuple[str, object]]]:
    named = [(name, value) for name, value in reason.params if not isinstance(value, int)]
    return reason.code, [(name, _gist(value) if isinstance(value, Reason) else value) for name, value in named]


def moment(at: datetime) -> str:
    """A moment as reasons name it: UTC, to the second. Raises ValueError for one without a zone."""
    if at.tzinfo is None:
        raise ValueError(f"{at} has no zone")
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
