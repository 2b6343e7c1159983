"""How well a node and its GPUs are: a pure function of open faults, latest checks and the agent's silence.

Silence is never health and never by itself a fault of the node: an agent that is not heard of makes its node unknown,
and unhealthy only where the cluster says so too (the Ready condition). A check that moves to and fro is flapping, and
so is a fault that opens and closes: it counts against health until it has kept still for a while. A check that broke
says nothing about the node (invariant 42).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover import autopilot

CAUSES = ("fault", "check", "flapping", "silence", "ready")
STATES = ("healthy", "unknown", "degraded", "unhealthy")  # best first: the last that holds is the answer

HEARTBEAT = timedelta(seconds=30)
LATE_AFTER = 2  # intervals without a report
SILENT_AFTER = 4

FLAPS = 4  # moves of one check or fault within FLAP_WINDOW that make it flap
FLAP_WINDOW = timedelta(minutes=30)
CALM_AFTER = timedelta(minutes=10)  # without a move, and it flaps no more

TOLD_AGAIN = timedelta(hours=3)  # probes tell every result again once an hour
RUN_AGAIN = timedelta(days=1)  # Autopilot's checks run on timers that are the operator's
UNTIL_RUN_AGAIN = ("dcgm", "gpumem", "iperf")  # may need idle GPUs: who failed did not recover by being left alone

_IS_BAD = {"pass": False, "warn": False, "fail": True}
_OF_SEVERITY = {"fatal": "unhealthy", "critical": "unhealthy", "degraded": "degraded", "warning": "degraded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of the node. ``devices``: the names of the GPU that it is about, () where it names none.

    ``moves``: when it opened and closed lately (any order); one that is closed counts only while it flaps.
    """

    kind: str
    code: str
    severity: str
    devices: frozenset[str] = frozenset()
    open: bool = True
    moves: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The latest result of a check, and when it turned lately (any order; ``turns``)."""

    name: str
    status: str
    device: str = ""
    moves: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU and every name that faults and checks may call it by: UUID, slot."""

    uuid: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What speaks against health: ``kind`` is one of CAUSES; ``about`` names which."""

    kind: str
    about: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One of STATES, with everything that speaks against health, the worst first."""

    state: str
    causes: tuple[Cause, ...] = ()


def silence(seen_at: datetime | None, *, now: datetime, interval: timedelta = HEARTBEAT) -> str:
    """``fresh``, ``late`` (LATE_AFTER intervals missed), ``silent`` (SILENT_AFTER), or ``never`` heard of.

    ``seen_at`` is when the portal received the last report, by its own clock.
    """
    if seen_at is None:
        return "never"
    missed = (now - seen_at) / interval
    return "silent" if missed > SILENT_AFTER else "late" if missed > LATE_AFTER else "fresh"


def flapping(moves: Sequence[datetime], *, now: datetime) -> bool:
    """Whether what moved at these moments is not to be trusted yet when it says that all is well.

    FLAPS moves within FLAP_WINDOW begin it, CALM_AFTER without any ends it.
    """
    lately = [at for at in moves if now - at <= FLAP_WINDOW + CALM_AFTER]
    if not lately or now - max(lately) > CALM_AFTER:
        return False
    return sum(max(lately) - at <= FLAP_WINDOW for at in lately) >= FLAPS


def counts(check: str, *, seen_at: datetime, heard_at: datetime | None) -> bool:
    """Whether a result still speaks for its device: the agent, last heard of at ``heard_at``, would have told it again.

    What it was about is gone otherwise, or no longer checked. While an agent is silent nothing grows old.
    """
    if check in UNTIL_RUN_AGAIN or heard_at is None:
        return True
    return heard_at - seen_at <= (RUN_AGAIN if check in autopilot.NAMES else TOLD_AGAIN)


def turns(changes: Iterable[tuple[str, str, datetime]]) -> tuple[datetime, ...]:
    """When a check turned from good to bad or back, by its changes of status (before, after, when), oldest first.

    What broke or was skipped in between says nothing of the node, and ``warn`` is as good as ``pass``.
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
    interval: timedelta = HEARTBEAT,
    out_of_reach: bool = False,
) -> Health:
    """The node as a whole. ``ready`` None: the cluster has not been heard of, and nothing is concluded from that.

    ``out_of_reach``: its API server does not answer, so that an agent may speak and not be heard (``untold``).
    """
    causes = [*_of_faults(faults, now=now), *_of_checks(checks, now=now)]
    heard = silence(seen_at, now=now, interval=interval)
    if ready is False:
        causes.append(Cause(kind="ready", about="", state="unhealthy"))
    if heard in ("silent", "never"):
        about = "untold" if out_of_reach and heard == "silent" else heard
        causes.append(Cause(kind="silence", about=about, state="unhealthy" if ready is False else "unknown"))
    return _worst(causes)


def of_gpu(gpu: Gpu, *, node: Health, faults: Iterable[Fault], checks: Iterable[Check], now: datetime) -> Health:
    """One GPU: what names it. Where nothing is known of the node, nothing is known of its GPUs."""
    causes = [
        *_of_faults((one for one in faults if one.devices & gpu.names), now=now),
        *_of_checks((one for one in checks if one.device in gpu.names), now=now),
        *(cause for cause in node.causes if cause.kind == "silence"),
    ]
    return _worst(causes)


def _of_faults(faults: Iterable[Fault], *, now: datetime) -> list[Cause]:
    causes = []
    for one in faults:
        about = f"{one.kind} {one.code}"
        if one.severity not in _OF_SEVERITY:
            continue
        if one.open:
            causes.append(Cause(kind="fault", about=about, state=_OF_SEVERITY[one.severity]))
        elif flapping(one.moves, now=now):
            causes.append(Cause(kind="flapping", about=about, state="degraded"))
    return causes


def _of_checks(checks: Iterable[Check], *, now: datetime) -> list[Cause]:
    causes = []
    for one in checks:
        about = f"{one.name} {one.device}".strip()
        if flapping(one.moves, now=now):
            causes.append(Cause(kind="flapping", about=about, state="degraded"))
        elif one.status == "fail":
            causes.append(Cause(kind="check", about=about, state="degraded"))
    return causes


def _worst(causes: Iterable[Cause]) -> Health:
    ordered = tuple(sorted(causes, key=lambda one: (-STATES.index(one.state), one.kind, one.about)))
    return Health(state=ordered[0].state if ordered else "healthy", causes=ordered)
