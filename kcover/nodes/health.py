"""The health of a node and its GPUs: a pure function of open faults, latest check results and the agent's silence.

Silence is never health, and never by itself a fault of the node. A silent agent makes its node unknown, and unhealthy
only if the cluster agrees (the Ready condition). A check that alternates is flapping, and so is a fault that opens and
closes. Both count against health until they have been stable for a while. A check that broke proves nothing (invariant
42).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover.checks import autopilot
from kcover.nodes import silence

CAUSES = ("fault", "check", "flapping", "silence", "ready")
STATES = ("healthy", "unknown", "degraded", "unhealthy")  # best first; the worst one that applies is the answer

MIN_FLAP_MOVES = 4  # moves of one check or fault within FLAP_WINDOW
FLAP_WINDOW = timedelta(minutes=30)
FLAPPING_ENDS_AFTER = timedelta(minutes=10)  # without a move

PROBE_RESULT_VALID_FOR = timedelta(hours=3)  # probes repeat every result once an hour
AUTOPILOT_RESULT_VALID_FOR = timedelta(days=1)  # operators choose the timers of Autopilot's checks
CHECKS_VALID_UNTIL_RERUN = (
    "dcgm",
    "gpumem",
    "iperf",
)  # they may need idle GPUs, so a failure stands until the next run

_IS_BAD = {"pass": False, "warn": False, "fail": True}
_OF_SEVERITY = {"fatal": "unhealthy", "degraded": "degraded", "warning": "degraded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of the node. ``devices``: the names of the GPU concerned, empty if it names none.

    ``moves``: when it opened and closed recently (any order). A closed fault counts only while it flaps.
    """

    kind: str
    code: str
    severity: str
    devices: frozenset[str] = frozenset()
    open: bool = True
    moves: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The latest result of a check, and when it changed recently (any order; ``status_moves``)."""

    name: str
    status: str
    device: str = ""
    moves: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU and every name that faults and checks use for it: UUID, slot."""

    uuid: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause against health. ``kind``: one of CAUSES. ``about``: the fault or check."""

    kind: str
    about: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One of STATES, with all causes against health, worst first."""

    state: str
    causes: tuple[Cause, ...] = ()


def flapping(moves: Sequence[datetime], *, now: datetime) -> bool:
    """Return whether a check or fault that moved at these times is flapping, so that a good result is not trusted yet.

    MIN_FLAP_MOVES within FLAP_WINDOW start it; FLAPPING_ENDS_AFTER without a move ends it.
    """
    lately = [at for at in moves if now - at <= FLAP_WINDOW + FLAPPING_ENDS_AFTER]
    if not lately or now - max(lately) > FLAPPING_ENDS_AFTER:
        return False
    return sum(max(lately) - at <= FLAP_WINDOW for at in lately) >= MIN_FLAP_MOVES


def counts(check: str, *, seen_at: datetime, reported_at: datetime | None) -> bool:
    """Return whether a result is still valid at the agent's last report ``reported_at``.

    Agents repeat valid results. A result that was not repeated concerns a device that is gone or no longer checked.
    Results do not age while an agent is silent.
    """
    if check in CHECKS_VALID_UNTIL_RERUN or reported_at is None:
        return True
    return reported_at - seen_at <= (
        AUTOPILOT_RESULT_VALID_FOR if check in autopilot.CHECKS else PROBE_RESULT_VALID_FOR
    )


def status_moves(changes: Iterable[tuple[str, str, datetime]]) -> tuple[datetime, ...]:
    """The times at which a check changed from good to bad or back, from its status changes (before, after, when),
    oldest first.

    ``error`` and ``skipped`` in between say nothing about the node, and ``warn`` counts as ``pass``.
    """
    found: list[datetime] = []
    bad: bool | None = None
    for before, after, at in changes:
        was = _IS_BAD.get(before, bad)
        bad = _IS_BAD.get(after, was)
        if was is not None and bad is not was:
            found.append(at)
    return tuple(found)


def of_node(
    *,
    ready: bool | None,
    seen_at: datetime | None,
    faults: Iterable[Fault],
    checks: Iterable[Check],
    now: datetime,
    interval: timedelta = silence.HEARTBEAT,
    out_of_reach: bool = False,
) -> Health:
    """The health of the node. ``ready`` None: the node's condition is unknown and proves nothing.

    ``out_of_reach``: the API server does not answer, so agents' reports may be refused (cause ``unconfirmed``).
    """
    causes = [*_of_faults(faults, now=now), *_of_checks(checks, now=now)]
    agent_state = silence.of(seen_at, now=now, interval=interval)
    if ready is False:
        causes.append(Cause(kind="ready", about="", state="unhealthy"))
    if agent_state in ("silent", "never"):
        about = "unconfirmed" if out_of_reach and agent_state == "silent" else agent_state
        causes.append(Cause(kind="silence", about=about, state="unhealthy" if ready is False else "unknown"))
    return _worst(causes)


def of_gpu(gpu: Gpu, *, node: Health, faults: Iterable[Fault], checks: Iterable[Check], now: datetime) -> Health:
    """The health of one GPU, from faults and checks that name it. An unknown node makes its GPUs unknown."""
    causes = [
        *_of_faults((row for row in faults if row.devices & gpu.names), now=now),
        *_of_checks((row for row in checks if row.device in gpu.names), now=now),
        *(cause for cause in node.causes if cause.kind == "silence"),
    ]
    return _worst(causes)


def _of_faults(faults: Iterable[Fault], *, now: datetime) -> list[Cause]:
    causes = []
    for fault in faults:
        about = f"{fault.kind} {fault.code}"
        if fault.severity not in _OF_SEVERITY:
            continue
        if fault.open:
            causes.append(Cause(kind="fault", about=about, state=_OF_SEVERITY[fault.severity]))
        elif flapping(fault.moves, now=now):
            causes.append(Cause(kind="flapping", about=about, state="degraded"))
    return causes


def _of_checks(checks: Iterable[Check], *, now: datetime) -> list[Cause]:
    causes = []
    for check in checks:
        about = f"{check.name} {check.device}".strip()
        if flapping(check.moves, now=now):
            causes.append(Cause(kind="flapping", about=about, state="degraded"))
        elif check.status == "fail":
            causes.append(Cause(kind="check", about=about, state="degraded"))
    return causes


def _worst(causes: Iterable[Cause]) -> Health:
    ordered = tuple(sorted(causes, key=lambda cause: (-STATES.index(cause.state), cause.kind, cause.about)))
    return Health(state=ordered[0].state if ordered else "healthy", causes=ordered)
