"""Reasons: why something was decided, done or refused, as data that can be rendered in any language.

A reason is a code and its parameters; ``kcover.sentences`` has one English sentence for each code. A reason is stored
and compared as data and is rendered only at the edge: ``str`` gives English, ``say`` uses the caller's translation.

Parameters are names (strings: a rule, a node, a person's text), measures (whole numbers), other reasons, or lists of
reasons. Two reasons that differ only in measures are the same answer with newer figures.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from string import Formatter
from typing import Any, TypeAlias

from kcover import actors, sentences
from kcover.sentences import named_places

Value: TypeAlias = "str | int | Reason | tuple[Reason, ...]"
Translate: TypeAlias = Callable[[str], str]

SPANS: Mapping[str, int] = {"span_d": 86400, "span_h": 3600, "span_min": 60, "span_s": 1}  # seconds of each unit
FAULT = "{kind} {code}"  # in a sentence that names a fault
SPELLED: Mapping[str, str] = {"xid": "Xid", "sxid": "SXid"}  # kinds of faults as people write them, if not as they are
PEOPLE = ("by", "other", "requester", "user")  # parameters that are actors; a sentence shows a user by the name alone
ALL = "all"  # the code of several reasons in sequence, each with a sentence of its own


def _fields(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)


FIELDS: Mapping[str, frozenset[str]] = {code: _fields(template) for code, template in sentences.SENTENCES.items()}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, made by ``of`` or ``both``. ``params``: the fields of the sentence of its ``code``."""

    code: str
    params: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return self.say(str)

    def say(self, translate: Translate) -> str:
        """The sentence in the language of ``translate`` (gettext for example), which gets the English template."""
        if self.code == ALL:
            return _join_sentences([part.say(translate) for part in self.parts], translate)
        rendered = {name: _render(value, translate) for name, value in self.params}
        for name in rendered.keys() & PEOPLE:
            names = str(rendered[name]).split(", ")
            rendered[name] = translate(sentences.LIST_SEPARATOR).join(map(actors.username, names))
        template = named_places.template(self.code, rendered) or sentences.SENTENCES[self.code]
        if FAULT in template:
            rendered["kind"] = SPELLED.get(str(rendered["kind"]), rendered["kind"])
        return translate(template).format_map(rendered)

    @property
    def parts(self) -> tuple["Reason", ...]:
        """The reasons that make up this one: itself, unless ``both`` made it."""
        if self.code != ALL:
            return (self,)
        value = dict(self.params)["reasons"]
        return value if isinstance(value, tuple) else ()

    def to_json(self) -> dict[str, Any]:
        """``{"code", "params"}`` of plain JSON; nested reasons have the same shape."""
        return {"code": self.code, "params": {name: _to_json(value) for name, value in self.params}}


def spelled(fault: str) -> str:
    """A fault such as ``xid 79`` as people write it: ``Xid 79``. Any other text stays as it is."""
    kind, gap, code = fault.partition(" ")
    return f"{SPELLED.get(kind, kind)}{gap}{code}"


class ExplainedError(Exception):
    """An error that people may be shown: its message is the English sentence of ``reason``."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def of(code: str, /, **params: Value) -> Reason:
    """The reason with this code.

    Raises KeyError for an unknown code, ValueError if the parameters are not the fields of its sentence.
    """
    if FIELDS[code] != params.keys():
        raise ValueError(f"reason {code} has the parameters {sorted(FIELDS[code])}, not {sorted(params)}")
    return Reason(code, tuple(sorted(params.items())))


def with_why(code: str, why: str, /, **params: Value) -> Reason:
    """The reason with this code, or with ``<code>_because`` if somebody gave a reason in free text."""
    return of(f"{code}_because", why=why, **params) if why else of(code, **params)


def both(*reasons: Reason | None) -> Reason:
    """Several reasons in sequence as one. A single reason stays as it is; None is left out."""
    parts = tuple(part for reason in reasons if reason is not None for part in reason.parts)
    return parts[0] if len(parts) == 1 else Reason(ALL, (("reasons", parts),))


def from_json(data: object) -> Reason:
    """The reason that ``to_json`` made. Raises ValueError for anything else."""
    match data:
        case {"code": "all", "params": {"reasons": list(parts)}}:
            return both(*map(from_json, parts))
        case {"code": str(code), "params": dict(params)} if FIELDS.get(code) == params.keys():
            return of(code, **{name: _value(value) for name, value in params.items()})
    raise ValueError(f'not a reason: {data!r}; write {{"code", "params"}} with a code of kcover.sentences')


def kept(data: Mapping[str, Any]) -> Reason | None:
    """The reason in a JSON column of a row; None if the column is empty."""
    return from_json(data) if data else None


def says(reason: Reason | None, *codes: str) -> bool:
    """Returns whether the reason, or one that it is made up of, has one of these codes.

    Raises KeyError for a code that has no sentence.
    """
    return bool(saying(reason, *codes))


def saying(reason: Reason | None, *codes: str) -> tuple[Reason, ...]:
    """The reasons that make up this one and have one of these codes. Raises KeyError for a code without a sentence."""
    wanted = known(*codes)
    return tuple(part for part in reason.parts if part.code in wanted) if reason is not None else ()


def stored_saying(data: Mapping[str, Any], *codes: str) -> tuple[Reason, ...]:
    """``saying`` of a JSON column of a row. A reason that this version does not know says none of them.

    A newer version may have stored it. Raises KeyError for a code without a sentence among ``codes``.
    """
    try:
        reason = kept(data)
    except ValueError:
        reason = None
    return saying(reason, *codes)


def known(*codes: str) -> tuple[str, ...]:
    """The codes, for a rule that goes by them, such as a condition on a column.

    Raises KeyError for a code that has no sentence, so that no rule goes by a sentence that was renamed.
    """
    if unknown := sorted({*codes} - FIELDS.keys()):
        raise KeyError(f"no sentence has the code {unknown[0]}")
    return codes


def text(data: Mapping[str, Any], translate: Translate = str) -> str:
    """The sentence of a reason in a JSON column of a row; "" if the column is empty."""
    return from_json(data).say(translate) if data else ""


def _value(value: object) -> Value:
    if isinstance(value, list):
        return tuple(from_json(part) for part in value)
    return value if isinstance(value, str | int) else from_json(value)


def _to_json(value: Value) -> Any:
    if isinstance(value, tuple):
        return [part.to_json() for part in value]
    return value.to_json() if isinstance(value, Reason) else value


def _render(value: Value, translate: Translate) -> str | int:
    if isinstance(value, tuple):
        return translate(sentences.LIST_SEPARATOR).join(part.say(translate) for part in value)
    return value.say(translate) if isinstance(value, Reason) else value


def _join_sentences(rendered: Iterable[str], translate: Translate) -> str:
    """Sentences in sequence. A full stop is added after a sentence that ends with free text."""
    paragraph = ""
    for sentence in rendered:
        if paragraph and paragraph[-1] == ".":
            paragraph += " "
        elif paragraph and paragraph[-1] not in "。！？":
            paragraph += translate(sentences.SENTENCE_SEPARATOR)
        paragraph += sentence
    return paragraph


def same_but_for_numbers(some: Iterable[Reason], others: Iterable[Reason]) -> bool:
    """Returns whether both are the same reasons in the same order, apart from figures. Durations are no figures.

    A duration in a reason is a setting such as a guard's window, so another duration is another reason.
    """
    return [_without_numbers(reason) for reason in some] == [_without_numbers(reason) for reason in others]


def _without_numbers(reason: Reason) -> tuple[str, list[tuple[str, object]]]:
    if reason.code in SPANS:
        return reason.code, list(reason.params)
    named = [(name, value) for name, value in reason.params if not isinstance(value, int)]
    return reason.code, [(name, _comparable(value)) for name, value in named]


def _comparable(value: Value) -> object:
    if isinstance(value, tuple):
        return [_without_numbers(part) for part in value]
    return _without_numbers(value) if isinstance(value, Reason) else value


def named(names: Sequence[str], *, most: int) -> Value:
    """Names as one parameter: at most ``most`` of them, and the number of the others."""
    shown = ", ".join(names[:most])
    return of("names_and_more", names=shown, more=len(names) - most) if len(names) > most else shown


def either(names: Sequence[str]) -> Value:
    """Alternatives as one parameter: "drain or reboot". Raises ValueError if there is none."""
    return _joined("either", names)


def together(names: Sequence[str]) -> Value:
    """Names that all count as one parameter: "drain and reboot". Raises ValueError if there is none."""
    return _joined("together", names)


def state(name: str, message: str = "") -> Value:
    """A state, and a message about it if there is one, as one parameter. An unknown state stays as it is."""
    code = f"state_{name}"
    known = of(code) if code in FIELDS else name
    return of("state_with_message", state=known, message=message) if message else known


def _joined(code: str, names: Sequence[str]) -> Value:
    first, *others = names
    return of(code, first=first, others=_joined(code, others)) if others else first


def moment(at: datetime) -> str:
    """A time as reasons write it: UTC, to the second. Raises ValueError for a time without a time zone."""
    if at.tzinfo is None:
        raise ValueError(f"{at} has no time zone")
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def read_moment(text: str) -> datetime:
    """The time that ``moment`` wrote. Raises ValueError for another text."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)


def span(time: timedelta) -> Reason:
    """A duration as one parameter, in the largest unit of which it is a whole number: 5 min, 7 d, 90 s."""
    seconds = int(time.total_seconds())
    unit = next((unit for unit, length in SPANS.items() if seconds and seconds % length == 0), "span_s")
    return of(unit, n=seconds // SPANS[unit])
