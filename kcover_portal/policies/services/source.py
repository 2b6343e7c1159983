"""YAML text to plain documents, each value with the place where it was written.

Built on PyYAML's events rather than on its loader or composer. That finds duplicate keys, keeps the line and column of
every value, and rejects what YAML 1.1 and 1.2 read differently (``on``, ``012``, ``1:30``) instead of guessing.

``yaml.compose_all`` would be shorter, but its C composer overflows the stack on a text of 200,000 brackets, which fits
into MAX_BYTES. Its nodes know neither where an alias stands nor whether a tag was written, and it rejects an anchor
that is defined twice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 20_000  # after aliases are written out, over all documents of a text

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
    """An error or a warning; line and column count from 1, ``path`` is the place in the document."""

    line: int
    column: int
    path: str
    message: str

    @property
    def text(self) -> str:
        """The message, prefixed with its path if it has one."""
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed document with its own text; ``marks`` gives line and column of every path in it."""

    content: Any
    text: str
    line: int
    marks: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def at(self, path: Path) -> tuple[int, int]:
        """Where the path was written; for something that is missing, where its nearest ancestor was."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.marks:
                return self.marks[path[:length]]
        return self.line, 1


class Unreadable(ValueError):
    """The text is not readable YAML; ``problem`` says where and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"line {problem.line}, column {problem.column}: {problem.message}")
        self.problem = problem


def spell(path: Path) -> str:
    """A path as people write it: ``spec.rules[0].errorCode[1]``."""
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
    """The text of a file or request body; raises Unreadable when it is too big or not UTF-8."""
    raw = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    if len(raw) > MAX_BYTES:
        raise Unreadable(Problem(1, 1, "", f"the text has {len(raw)} bytes; the limit is {MAX_BYTES}"))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise Unreadable(Problem(before.count(b"\n") + 1, column, "", message)) from error


def read(text: str) -> tuple[list[Document], list[Problem]]:
    """Every document of the text, empty ones left out, and the mistakes found on the way.

    Raises Unreadable where parsing cannot go on.
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
        """The documents in order."""
        begun: list[tuple[int, Any, dict[Path, tuple[int, int]]]] = []
        while not isinstance(event := self._next(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                found: dict[Path, tuple[int, int]] = {}
                content = self._value(self._next(), (), found)
                begun.append((_mark(event)[0] - 1, content, found))
        for index, (first, content, marks) in enumerate(begun):
            last = begun[index + 1][0] if index + 1 < len(begun) else len(self.lines)
            if content is not None:
                yield Document(content, self._slice(first if index else 0, last), first + 1, marks)

    def _slice(self, first: int, last: int) -> str:
        """A document's own lines, without the separators around them."""
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
            message = f"character {error.character!r} is not allowed in YAML"
            raise Unreadable(Problem(line, column, "", message)) from error

    def _explain(self, error: yaml.MarkedYAMLError, line: int) -> str:
        written = self.lines[line - 1] if line <= len(self.lines) else ""
        if "\t" in written[: len(written) - len(written.lstrip())]:
            return "YAML cannot be indented with tabs; use spaces"
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        return f"invalid YAML: {reason}"

    def _place(self, offset: int) -> tuple[int, int]:
        """Line and column of a byte offset, as libyaml gives it for characters that it refuses."""
        before = LINE.findall(self.text.encode()[:offset].decode(errors="ignore"))
        lines = [line for line in before if line] or [""]
        ended = lines[-1][-1:] in ("\n", "\r")
        return (len(lines) + 1, 1) if ended else (len(lines), len(lines[-1]) + 1)

    def _value(self, event: Any, path: Path, marks: dict[Path, tuple[int, int]]) -> Any:
        """The value that begins with ``event``; fills ``marks`` for it and everything in it."""
        place = _mark(event)
        marks.setdefault(path, place)  # a mapping's value keeps the place of its key
        self._count(place)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), path, marks, place)
        if len(path) > MAX_DEPTH:
            raise Unreadable(Problem(*place, spell(path), f"nested more than {MAX_DEPTH} levels deep"))
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
            self._problem(place, path, f"the tag {event.tag} is not supported; remove it")
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
                self._problem(place, (*path, key), f"duplicate key {key!r}; first used in line {first}")
                self._value(self._next(), (*path, key), {})
                continue
            marks[(*path, key)] = place
            content[key] = self._value(self._next(), (*path, key), marks)
        return content

    def _key(self, event: Any, path: Path, place: tuple[int, int]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise Unreadable(Problem(*place, spell(path), "a key must be a string, not a list or a mapping"))
        self._count(place)
        if event.value == "<<" and event.implicit[0]:
            self._problem(place, path, "merge keys (<<) are not supported; write the keys out")
        return str(event.value)

    def _scalar(self, event: Any, path: Path, place: tuple[int, int]) -> Any:
        text = event.value
        if event.tag in ("!", "tag:yaml.org,2002:str") or (event.tag is None and not event.implicit[0]):
            return text
        if event.tag is not None:
            self._problem(place, path, f"the tag {event.tag} is not supported; remove it")
        if NULL.fullmatch(text):
            return None
        if TRUE.fullmatch(text) or FALSE.fullmatch(text):
            return bool(TRUE.fullmatch(text))
        if WHOLE.fullmatch(text):
            return int(text)
        if DECIMAL.fullmatch(text):
            return float(text)
        if READ_DIFFERENTLY.fullmatch(text):
            self._problem(place, path, f'YAML 1.1 and 1.2 read {text} differently; write "{text}" to mean the text')
        return text

    def _alias(self, anchor: str, path: Path, marks: dict[Path, tuple[int, int]], place: tuple[int, int]) -> Any:
        if anchor in self._open:
            raise Unreadable(Problem(*place, spell(path), f"Alias *{anchor} refers to itself."))
        if anchor not in self._anchors:
            raise Unreadable(Problem(*place, spell(path), f"Alias *{anchor} has no anchor &{anchor} before it."))
        value, inner = self._anchors[anchor]
        for relative in inner:  # what is repeated has the place of the alias: there it can be changed
            self._count(place)
            marks.setdefault((*path, *relative), place)
        return value

    def _count(self, place: tuple[int, int]) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            raise Unreadable(Problem(*place, "", f"more than {MAX_VALUES} values with aliases expanded"))

    def _problem(self, place: tuple[int, int], path: Path, message: str) -> None:
        self.problems.append(Problem(*place, spell(path), message))


def _mark(event: Any) -> tuple[int, int]:
    """Line and column at which an event begins, counted from 1."""
    return event.start_mark.line + 1, event.start_mark.column + 1
