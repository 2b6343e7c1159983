"""Parses YAML text to plain documents, with the line and column of each value.

It uses PyYAML's events instead of its loader. This finds duplicate keys and keeps the position of each value. Scalars
that YAML 1.1 and 1.2 read differently (``on``, ``012``, ``1:30``) are rejected.

``yaml.compose_all`` would be shorter, but its C composer overflows the stack on a text of 200,000 brackets, which fits
into MAX_BYTES. Its nodes lack the position of an alias and whether a tag was written, and it rejects an anchor that is
defined twice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from kcover import reasons
from kcover.reasons import Reason, Value

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 20_000  # with aliases expanded, over all documents of a text

Path = tuple[str | int, ...]

LINE = re.compile(r"[^\n\r\x85\u2028\u2029]*(?:\r\n|[\n\r\x85\u2028\u2029]|$)")  # YAML's own line breaks
NULL = re.compile(r"~|null|Null|NULL|")
TRUE, FALSE = re.compile(r"true|True|TRUE"), re.compile(r"false|False|FALSE")
WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
READ_DIFFERENTLY = re.compile(
    r"(?i:yes|no|on|off)"  # true and false in YAML 1.1
    r"|[-+]?0[0-7_]+|[-+]?0[xob][0-9a-fA-F_]+"  # octal, hexadecimal, binary
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+"  # 1:30 is 90 in YAML 1.1
    r"|[-+]?[0-9][0-9_]{17,}|[-+]?[0-9]+_[0-9_]*"
)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """An error or a warning. Line and column count from 1; ``path`` is the place in the document."""

    line: int
    column: int
    path: str
    reason: Reason = field(compare=False)
    message: str = field(init=False)  # the English sentence

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", str(self.reason))

    def to_json(self) -> dict[str, Any]:
        """The position, the English sentence, and the code of the reason with its parameters."""
        place = {"line": self.line, "column": self.column, "path": self.path}
        return {**place, "message": self.message, **self.reason.to_json()}

    @property
    def text(self) -> str:
        """The message, prefixed with its path if it has one."""
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document with its text. ``marks`` has the line and column of each path in it."""

    content: Any
    text: str
    line: int
    marks: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def at(self, path: Path) -> tuple[int, int]:
        """Returns line and column of a path; of the nearest ancestor if the path is missing."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.marks:
                return self.marks[path[:length]]
        return self.line, 1


class Unreadable(ValueError):
    """The text is not valid YAML; ``problem`` says where and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"line {problem.line}, column {problem.column}: {problem.message}")
        self.problem = problem


def spell(path: Path) -> str:
    """Formats a path for people: ``spec.rules[0].errorCode[1]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z0-9_-]+", str(part)):
            text += f".{part}" if text else str(part)
        else:
            text += f'["{part}"]'
    return text


def decode(source: str | bytes) -> str:
    """Decodes a file or request body. Raises Unreadable if it is too large or not UTF-8."""
    raw = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    if len(raw) > MAX_BYTES:
        raise Unreadable(Problem(1, 1, "", reasons.of("yaml_too_large", bytes=len(raw), most=MAX_BYTES)))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        wrong = reasons.of("yaml_not_utf8", byte=f"{raw[error.start]:02x}")
        raise Unreadable(Problem(before.count(b"\n") + 1, column, "", wrong)) from error


def read(text: str) -> tuple[list[Document], list[Problem]]:
    """Returns the non-empty documents of the text and the problems found.

    Raises Unreadable if parsing cannot continue.
    """
    reader = _Reader(text)
    return list(reader.documents()), reader.problems


class _Reader:
    """Builds documents from parser events."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = LINE.findall(text)
        self.problems: list[Problem] = []
        self.values = 0
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._anchors: dict[str, tuple[Any, dict[Path, tuple[int, int]]]] = {}
        self._open: list[str] = []

    def documents(self) -> Iterator[Document]:
        """Yields the documents in order."""
        started: list[tuple[int, Any, dict[Path, tuple[int, int]]]] = []
        while not isinstance(event := self._next(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                found: dict[Path, tuple[int, int]] = {}
                content = self._value(self._next(), (), found)
                started.append((_mark(event)[0] - 1, content, found))
        for index, (first, content, marks) in enumerate(started):
            last = started[index + 1][0] if index + 1 < len(started) else len(self.lines)
            if content is not None:
                yield Document(content, self._slice(first if index else 0, last), first + 1, marks)

    def _slice(self, first: int, last: int) -> str:
        """Returns a document's own lines without the separators around them."""
        lines = self.lines[first:last]
        while lines and lines[0].strip() in ("", "---"):
            lines = lines[1:]
        while lines and lines[-1].strip() in ("", "..."):
            lines = lines[:-1]
        return "".join(lines).rstrip() + "\n"

    def _next(self) -> Any:
        try:
            return next(self._events)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise Unreadable(Problem(line, column, "", self._explain(error, line))) from error
        except yaml.reader.ReaderError as error:
            line, column = self._place(error.position)
            wrong = reasons.of("yaml_character", character=repr(error.character))
            raise Unreadable(Problem(line, column, "", wrong)) from error

    def _explain(self, error: yaml.MarkedYAMLError, line: int) -> Reason:
        written = self.lines[line - 1] if line <= len(self.lines) else ""
        if "\t" in written[: len(written) - len(written.lstrip())]:
            return reasons.of("yaml_tabs")
        return reasons.of("yaml_invalid", error=", ".join(part for part in (error.context, error.problem) if part))

    def _place(self, offset: int) -> tuple[int, int]:
        """Returns line and column of a byte offset, which libyaml reports for forbidden characters."""
        before = LINE.findall(self.text.encode()[:offset].decode(errors="ignore"))
        lines = [line for line in before if line] or [""]
        ended = lines[-1][-1:] in ("\n", "\r")
        return (len(lines) + 1, 1) if ended else (len(lines), len(lines[-1]) + 1)

    def _value(self, event: Any, path: Path, marks: dict[Path, tuple[int, int]]) -> Any:
        """Returns the value that begins with ``event``; adds it and its contents to ``marks``."""
        place = _mark(event)
        marks.setdefault(path, place)  # a mapping's value keeps the place of its key
        self._count(place)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), path, marks, place)
        if len(path) > MAX_DEPTH:
            raise Unreadable(Problem(*place, spell(path), reasons.of("yaml_too_deep", most=MAX_DEPTH)))
        if event.anchor:
            self._open.append(event.anchor)
        inner: dict[Path, tuple[int, int]] = {}
        value = self._content(event, path, inner, place)
        marks |= {key: mark for key, mark in inner.items() if key not in marks}
        if event.anchor:
            self._open.remove(event.anchor)
            self._anchors[event.anchor] = (value, {key[len(path) :]: mark for key, mark in inner.items()})
        return value

    def _content(self, event: Any, path: Path, marks: dict[Path, tuple[int, int]], place: tuple[int, int]) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path, place)
        if event.tag not in (None, "!", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"):
            self._problem(place, path, "yaml_tag", tag=str(event.tag))
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, marks)
        return self._mapping(path, marks)

    def _sequence(self, path: Path, marks: dict[Path, tuple[int, int]]) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items)), marks))
        return items

    def _mapping(self, path: Path, marks: dict[Path, tuple[int, int]]) -> dict[Any, Any]:
        content: dict[Any, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            place = _mark(event)
            key = self._key(event, path, place)
            if key in content:
                first = marks[(*path, key)][0]
                self._problem(place, (*path, key), "yaml_duplicate_key", key=repr(key), line=first)
                self._value(self._next(), (*path, key), {})
                continue
            marks[(*path, key)] = place
            content[key] = self._value(self._next(), (*path, key), marks)
        return content

    def _key(self, event: Any, path: Path, place: tuple[int, int]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise Unreadable(Problem(*place, spell(path), reasons.of("yaml_key_type")))
        self._count(place)
        if event.value == "<<" and event.implicit[0]:
            self._problem(place, path, "yaml_merge_key")
        return str(event.value)

    def _scalar(self, event: Any, path: Path, place: tuple[int, int]) -> Any:
        text = event.value
        if event.tag in ("!", "tag:yaml.org,2002:str") or (event.tag is None and not event.implicit[0]):
            return text
        if event.tag is not None:
            self._problem(place, path, "yaml_tag", tag=str(event.tag))
        if NULL.fullmatch(text):
            return None
        if TRUE.fullmatch(text) or FALSE.fullmatch(text):
            return bool(TRUE.fullmatch(text))
        if WHOLE.fullmatch(text):
            return int(text)
        if DECIMAL.fullmatch(text):
            return float(text)
        if READ_DIFFERENTLY.fullmatch(text):
            self._problem(place, path, "yaml_ambiguous", text=text)
        return text

    def _alias(self, anchor: str, path: Path, marks: dict[Path, tuple[int, int]], place: tuple[int, int]) -> Any:
        if anchor in self._open:
            raise Unreadable(Problem(*place, spell(path), reasons.of("yaml_alias_loop", anchor=anchor)))
        if anchor not in self._anchors:
            raise Unreadable(Problem(*place, spell(path), reasons.of("yaml_alias_unknown", anchor=anchor)))
        value, inner = self._anchors[anchor]
        for relative in inner:  # repeated values get the alias's position, where they can be changed
            self._count(place)
            marks.setdefault((*path, *relative), place)
        return value

    def _count(self, place: tuple[int, int]) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            raise Unreadable(Problem(*place, "", reasons.of("yaml_too_many_values", most=MAX_VALUES)))

    def _problem(self, place: tuple[int, int], path: Path, code: str, /, **params: Value) -> None:
        self.problems.append(Problem(*place, spell(path), reasons.of(code, **params)))


def _mark(event: Any) -> tuple[int, int]:
    """Returns the line and column at which an event begins, counted from 1."""
    return event.start_mark.line + 1, event.start_mark.column + 1
