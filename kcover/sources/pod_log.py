"""Logs of containers, as the Kubernetes API sends them: one observation for each line that reports a fault.

Each line begins with its time (``timestamps=true``):
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kcover import reasons
from kcover.faults import driver_line
from kcover.faults.weight import Weight
from kcover.sources import log_lines, observation
from kcover.sources.observation import Observation, ObservationBatch, Rejected, Unreadable
from kcover.values.quote import short_repr
from kcover.wire import fields

DEFAULT_NAMESPACES: Final = ("default",)
# What Konduktor looks for in pods' logs, and nvidia-peermem's line, which a pod that prints the kernel log has too.
PATTERNS: Final = (*log_lines.POD_PATTERNS, driver_line.PEERMEM)
MAX_FAULTS: Final = 100  # in one answer
LATENESS_SECONDS: Final = 60  # by which the clock of a node may be behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The container that wrote a log. ``uid``: of its pod."""

    namespace: str
    pod: str
    uid: str
    name: str
    node: str

    @property
    def path(self) -> str:
        """Its place among the logs of a cluster."""
        return f"{self.namespace}/{self.pod}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a log.

    ``last``: the time of the last line that was read, in nanoseconds (0: none has a time). ``is_whole``: no line
    follows.
    """

    batch: ObservationBatch
    last: int
    is_whole: bool


def read(
    log: bytes,
    container: Container,
    *,
    texts: Sequence[str] = PATTERNS,
    is_cut: bool = False,
    counted_until: int = 0,
    now: datetime,
) -> Page:
    """The lines that contain one of these texts, in any case. A line is known by its container, time and text.

    ``is_cut``: the log goes on, so that the last line may be half a line; its time counts, its text does not. The part
    ends after MAX_FAULTS lines. Rejected lines up to ``counted_until`` (nanoseconds) have been counted before.
    """
    text = log.decode(errors="replace")
    lines = text.split("\n")
    half = lines.pop()
    if not is_cut and half:
        lines.append(half)
    last = next((at for line in (half, *reversed(lines)) if (at := _time(line)) is not None), 0)
    lower = text.lower()
    if not any(one.lower() in lower for one in texts):
        return Page(batch=ObservationBatch(), last=last, is_whole=not is_cut)
    found: list[Observation] = []
    rejected: list[Rejected] = []
    at = 0
    for line in lines:
        seen = log_lines.pod_fault(line, texts)
        if seen is None:
            continue
        at = _time(line) or at
        if len(found) + len(rejected) == MAX_FAULTS:
            is_cut, last = True, at
            break
        try:
            found.append(_observation(line, seen, container, at=at, now=now))
        except Unreadable as error:
            if at > counted_until:
                rejected.append(Rejected(container.path, error.reason))
    return Page(
        batch=ObservationBatch(observations=tuple(found), rejected=tuple(rejected)), last=last, is_whole=not is_cut
    )


def _time(line: str) -> int | None:
    """The time before the line in nanoseconds; None if there is none, or none of our time."""
    try:
        stamp = datetime.fromisoformat(line.partition(" ")[0])
    except ValueError:
        return None
    at = log_lines.nanoseconds(stamp) if stamp.tzinfo is not None else -1
    return at if 0 <= at < log_lines.LATEST else None


def _observation(
    line: str, seen: log_lines.LoggedFault, container: Container, *, at: int, now: datetime
) -> Observation:
    stamp, _, text = line.partition(" ")
    if len(text) > log_lines.MAX_LINE:
        raise Unreadable("", reasons.of("source_line_long", characters=len(text), most=log_lines.MAX_LINE))
    if _time(line) is None:
        raise Unreadable("", reasons.of("source_time_invalid", value=short_repr(stamp)))
    if not fields.is_storable(text):
        raise Unreadable("", reasons.of("source_not_storable"))
    return Observation(
        path=container.path,
        key="\n".join((container.uid, container.name, stamp, text)),
        node=container.node,
        kind=seen.kind,
        code=seen.code,
        check=str(seen.code),
        message=text.strip()[: observation.MAX_MESSAGE],
        weight=Weight.PROGRAM,  # any program can print this line
        seen_at=observation.not_ahead(log_lines.moment(at), "", now=now),
    )
