"""A stand-in for Loki: it stores lines by their labels and answers ``query_range``.

Of LogQL it knows stream selectors with ``=``, ``!=``, ``=~`` and ``!~``, and the line filters ``|=``, ``!=``, ``|~``
and ``!~``. Other queries are 400, as at Loki.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

MAX_ENTRIES: Final = 5_000  # in one answer
DEFAULT_LIMIT: Final = 100
_MATCHER = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")\s*(,|\})')
_FILTER = re.compile(r'\s*(\|=|!=|\|~|!~)\s*("(?:[^"\\]|\\.)*")')


class QueryError(ValueError):
    """A query that is not understood."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A line. ``at``: nanoseconds since 1970."""

    at: int
    labels: Mapping[str, str]
    line: str


@dataclass(slots=True)
class LogStore:
    """The lines, in the order in which they arrived. ``token`` and ``tenant``: what callers must send, "" = anything.

    ``keep``: the number of lines that are kept.
    """

    token: str = ""
    tenant: str = ""
    keep: int = 50_000
    entries: list[LogEntry] = field(default_factory=list)

    def add(self, labels: Mapping[str, str], line: str, *, at: datetime | int) -> None:
        """Stores a line. ``at``: when it was written, which may be long ago."""
        self.entries.append(LogEntry(at if isinstance(at, int) else nanoseconds(at), dict(labels), line))
        del self.entries[: -self.keep]

    def add_kernel_line(self, node: str, line: str, at: datetime) -> None:
        """Stores a line of a node's kernel log, with the labels of Konduktor's collector."""
        self.add({"k8s_daemonset_name": "dmesg", "k8s_node_name": node}, line, at=at)

    async def query_range(self, request: web.Request) -> web.Response:
        """``GET /loki/api/v1/query_range``."""
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401, text="unauthorized")
        if self.tenant and request.headers.get("X-Scope-OrgID") != self.tenant:
            return web.Response(status=401, text="no org id")
        try:
            start, end = (int(request.query[name]) for name in ("start", "end"))
            limit = int(request.query.get("limit", DEFAULT_LIMIT))
            if not 0 < limit <= MAX_ENTRIES:
                raise QueryError(f"max entries limit per query exceeded, limit > max_entries_limit ({limit})")
            accepts = parse(request.query["query"])
        except (KeyError, ValueError) as error:
            return web.Response(status=400, text=f"parse error: {error}")
        found = [entry for entry in self.entries if start <= entry.at < end and accepts(entry)]
        backward = request.query.get("direction", "backward") == "backward"
        found.sort(key=lambda entry: entry.at, reverse=backward)
        return web.json_response(
            {"status": "success", "data": {"resultType": "streams", "result": _streams(found[:limit])}}
        )


def nanoseconds(at: datetime) -> int:
    """The time in nanoseconds since 1970."""
    return round((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6) * 1_000


def _streams(entries: list[LogEntry]) -> list[dict[str, Any]]:
    streams: dict[str, dict[str, Any]] = {}
    for entry in entries:
        key = json.dumps(entry.labels, sort_keys=True)
        stream = streams.setdefault(key, {"stream": dict(entry.labels), "values": []})
        stream["values"].append([str(entry.at), entry.line])
    return list(streams.values())


def parse(query: str) -> Callable[[LogEntry], bool]:
    """The function that tells whether an entry belongs to the answer. Raises QueryError."""
    tests = list(_tests(query))
    return lambda entry: all(test(entry) for test in tests)


def _tests(query: str) -> Iterator[Callable[[LogEntry], bool]]:
    if not query.startswith("{"):
        raise QueryError("a query begins with a stream selector in braces")
    at, closed = 1, False
    while not closed:
        match = _MATCHER.match(query, at)
        if match is None:
            raise QueryError(f"unexpected text at column {at}")
        yield _label_test(match[1], match[2], json.loads(match[3]))
        at, closed = match.end(), match[4] == "}"
    while query[at:].strip():
        match = _FILTER.match(query, at)
        if match is None:
            raise QueryError(f"unexpected text at column {at}")
        yield _line_test(match[1], json.loads(match[2]))
        at = match.end()


def _label_test(name: str, sign: str, value: str) -> Callable[[LogEntry], bool]:
    pattern = re.compile(value if sign.endswith("~") else re.escape(value))
    wanted = not sign.startswith("!")
    return lambda entry: (pattern.fullmatch(entry.labels.get(name, "")) is not None) == wanted


def _line_test(sign: str, value: str) -> Callable[[LogEntry], bool]:
    pattern = re.compile(value if sign.endswith("~") else re.escape(value))
    wanted = sign.startswith("|")
    return lambda entry: (pattern.search(entry.line) is not None) == wanted
