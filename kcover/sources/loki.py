"""Loki's log queries and their answers: one observation for each line that reports a fault.

Konduktor's two queries: the stream of kernel logs, and the logs of pods in watched namespaces.
Format: https://grafana.com/docs/loki/latest/reference/loki-http-api/#query-logs-within-a-range-of-time
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kcover import reasons
from kcover.faults import driver_line, kernel_line, xid
from kcover.faults.device import named
from kcover.faults.weight import Weight
from kcover.sources import labels as series_labels, log_lines, observation, told_lines
from kcover.sources.observation import Json, Observation, ObservationBatch, Rejected, Unreadable
from kcover.sources.told_lines import Unsupported
from kcover.values.quote import short_repr, short_text
from kcover.wire import fields

DEFAULT_STREAM: Final = '{k8s_daemonset_name="dmesg"}'
# Whoever may create pods can call a DaemonSet dmesg. Konduktor's is in the first one; users have no pods in the other.
DEFAULT_STREAM_NAMESPACES: Final = ("dmesg-logging", "kube-system")
DEFAULT_NAMESPACES: Final = ("default",)
NAMESPACE_LABEL: Final = "k8s_namespace_name"
NODE_LABELS: Final = ("k8s_node_name", *series_labels.NODE_LABELS, "host", "hostname")
LATENESS_SECONDS: Final = 60
LIMIT: Final = 1_000  # lines in one answer; Loki itself gives at most 5,000
_SPECIAL: Final = re.compile(r"([.+*?()|\[\]{}^$\\])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query of a source. ``name``: by which its position is stored. ``texts``: of pods' logs; (): a kernel log.

    ``trusted``: the namespaces whose lines count, where the stream names one; (): an admin's selector says which.
    ``most``: lines in one answer. A query for one line is never read on.
    """

    name: str
    logql: str
    texts: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    most: int = LIMIT

    def believes(self, labels: Json) -> bool:
        """Returns whether the lines of a stream count."""
        return not self.trusted or labels.get(NAMESPACE_LABEL, "") in ("", *self.trusted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer: what its lines say, how many there are, and the time of the last one in nanoseconds (0: no line)."""

    batch: ObservationBatch
    lines: int
    last: int


def queries(settings: Mapping[str, Any]) -> tuple[Query, ...]:
    """The query for the kernel logs and the query for the pods' logs.

    With the default stream, one more asks for a single line of other namespaces, so that the source tells of it. Their
    lines fill no answer of the kernel logs.
    """
    texts = tuple(settings.get("pod_patterns", log_lines.POD_PATTERNS))
    namespaces = "|".join(map(_escaped, settings.get("pod_namespaces", DEFAULT_NAMESPACES)))
    pods = f"{{{NAMESPACE_LABEL}=~{_quoted(namespaces)}}}"
    kernel = f"|~ {_any_of(log_lines.KERNEL_PATTERNS)}"
    of_pods = Query(name="pods", logql=f"{pods} |~ {_any_of(texts)}", texts=texts)
    if "stream" in settings:
        return Query(name="kernel", logql=f"{settings['stream']} {kernel}"), of_pods
    believed = _quoted("|".join(("", *map(_escaped, DEFAULT_STREAM_NAMESPACES))))  # "": no such label
    stream, trusted = DEFAULT_STREAM.removesuffix("}"), DEFAULT_STREAM_NAMESPACES
    inside = f"{stream}, {NAMESPACE_LABEL}=~{believed}}} {kernel}"
    outside = f"{stream}, {NAMESPACE_LABEL}!~{believed}}} {kernel}"
    return (
        Query(name="kernel", logql=inside, trusted=trusted),
        of_pods,
        Query(name="others", logql=outside, trusted=trusted, most=1),
    )


def _any_of(texts: Sequence[str]) -> str:
    return _quoted(f"(?i)({'|'.join(map(_escaped, texts))})")


def _escaped(text: str) -> str:
    """The text as a regular expression of Go, which refuses most escapes that Python's ``re.escape`` makes."""
    return _SPECIAL.sub(r"\\\1", text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def read(
    body: object, query: Query, *, node_labels: Sequence[str] = NODE_LABELS, counted_until: int = 0, now: datetime
) -> Page:
    """The lines of an answer. Raises Unreadable if it is not an answer with streams.

    A line that reports no fault has no consequence. A line is known by its stream, nanosecond and text, one of a kernel
    by its node, printed time and text. Rejected lines up to ``counted_until`` (nanoseconds) have been counted before.
    """
    found: list[Observation] = []
    rejected: list[Rejected] = []
    cards: list[Unsupported] = []
    lines = last = 0
    for index, stream in enumerate(observation.query_result(body, "streams", code="loki_result", most=LIMIT)):
        try:
            labels = _labels(stream)
            values = observation.listed(stream, "values", most=LIMIT)
        except Unreadable as error:
            rejected.append(Rejected(f"streams/{index}/{error.path}".rstrip("/"), error.reason))
            continue
        lines += len(values)
        for path, value in _numbered(index, values):
            at = log_lines.LATEST
            try:
                at = _time(value)
                last = max(last, at)
                seen = _observation(value[1], at, labels, query, path=path, node_labels=node_labels, now=now)
                if (
                    seen is None
                    and not query.texts
                    and query.believes(labels)
                    and (card := _card(value[1], at, labels, node_labels)) is not None
                ):
                    cards.append(card)
            except Unreadable as error:
                if at > counted_until:
                    rejected.append(Rejected(f"{path}/{error.path}".rstrip("/"), error.reason))
                continue
            if seen is not None:
                found.append(seen)
    own = found if query.texts else told_lines.own(found, cards)
    return Page(batch=ObservationBatch(observations=tuple(own), rejected=tuple(rejected)), lines=lines, last=last)


def _numbered(index: int, values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"streams/{index}/values/{number}", value) for number, value in enumerate(values))


def _labels(stream: object) -> Mapping[str, str]:
    if not isinstance(stream, Mapping):
        raise Unreadable("", reasons.of("source_not_object", value=short_repr(stream)))
    given = observation.mapping(stream, "stream")
    return {name: observation.text(given, name) for name in given}


def _time(value: object) -> int:
    """The nanosecond of a value ``["1700000000000000000", "line"]``; newer versions add metadata."""
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[1], str):
        raise Unreadable("", reasons.of("loki_value", value=short_repr(value)))
    stamp = value[0]
    if not isinstance(stamp, str) or not stamp.isascii() or not stamp.isdigit() or len(stamp) > 19:
        raise Unreadable("0", reasons.of("source_time_invalid", value=short_repr(stamp)))
    return min(int(stamp), log_lines.LATEST)


def _observation(
    line: str,
    at: int,
    labels: Json,
    query: Query,
    *,
    path: str,
    node_labels: Sequence[str],
    now: datetime,
) -> Observation | None:
    if len(line) > log_lines.MAX_LINE:
        raise Unreadable("1", reasons.of("source_line_long", characters=len(line), most=log_lines.MAX_LINE))
    seen = log_lines.pod_fault(line, query.texts) if query.texts else log_lines.kernel_fault(line)
    if seen is None:
        return None
    if not query.believes(labels):
        known = ", ".join(query.trusted)
        namespace = short_text(labels[NAMESPACE_LABEL])
        raise Unreadable("", reasons.of("loki_namespace", namespace=namespace, known=known, setting="stream"))
    if not fields.is_storable(line):
        raise Unreadable("1", reasons.of("source_not_storable"))
    seen_at = _printed(line, at, is_kernels=not query.texts)
    node = series_labels.node(labels, node_labels)
    uptime = kernel_line.uptime(line) if not query.texts else None
    if uptime is not None:  # a collector may store it again, with another time: the kernel prints no time twice
        key: tuple[str, ...] = (query.name, node, str(uptime), kernel_line.words_of(line).strip())
    elif not query.texts and kernel_line.header(line):  # the same: a second has one line of one text
        key = (query.name, node, line.strip())
    else:
        key = (query.name, json.dumps(labels, sort_keys=True), str(at), line)
    return Observation(
        path=path,
        key="\n".join(key),
        node=node,
        kind=seen.kind,
        code=seen.code,
        check=str(seen.code),
        device=named(pci=seen.pci or ""),
        message=line.strip()[: observation.MAX_MESSAGE],
        severity=driver_line.SEVERITIES.get(str(seen.code), "warning") if not query.texts else "warning",
        alias=xid.OFF_THE_BUS if seen.code == driver_line.LOST else None,  # both are told of one GPU
        weight=Weight.PROGRAM if query.texts else Weight.NODE,  # any program can print this line
        seen_at=observation.not_ahead(seen_at, "0", now=now),
        uptime=uptime,
    )


def _card(line: str, at: int, labels: Json, node_labels: Sequence[str]) -> Unsupported | None:
    """The card that the driver cannot run, if a line of the kernel says so."""
    if not driver_line.says_unsupported(line) or kernel_line.is_of_program(line):
        return None
    try:
        node = series_labels.node(labels, node_labels)
    except Unreadable:  # it tells nothing of its own that could be rejected
        return None
    slot = xid.slot(driver_line.unsupported_gpu(line))
    return Unsupported(node=node, slot=slot, at=_printed(line, at, is_kernels=True))


def _printed(line: str, at: int, *, is_kernels: bool) -> datetime:
    """When the line was printed; ``at``: when a collector stored it, perhaps late, such as after a reboot."""
    stored = log_lines.moment(at)
    printed = kernel_line.printed_at(line)
    if printed is None and is_kernels:
        printed = kernel_line.latest_at(line, read_at=stored)
    return printed if printed is not None and printed < stored else stored
