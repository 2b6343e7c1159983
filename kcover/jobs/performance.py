"""The performance of a running job against its own past, and the node that a lasting drop follows.

A reading has one cost for the job (seconds a step: the higher, the slower), and one for each node where the query has
them. Two things may accuse a node. It alone costs ``factor`` times as much as the median of its peers. Or the job was
normal, then an attempt with this one new node became slow, and was never normal in it. Whatever else is slow accuses
no node. Anything doubtful restarts the clock of a drop: a gap, a clock that moved back, another attempt.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final, Self

MAX_ATTEMPTS: Final = 8  # that are kept of a job
MAX_COSTS: Final = 60  # of an attempt, and from which the usual cost is taken
MAX_NODES: Final = 512  # of a job whose nodes are compared; larger ones accuse no node
LEAST_PEERS: Final = 3  # of a node that is compared with them
LEAST_OF_RUN: Final = 3  # readings in a drop, or in a return
DIGITS: Final = 6  # of a stored cost

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """``factor``: a cost above it times the usual one is a drop. ``hold``: how long a drop or a return must last.

    ``warm_up``: after the start of an attempt nothing counts. ``least``: readings of a past that can be compared with.
    ``gap``: readings further apart do not belong together.
    """

    factor: float = 1.3
    hold: timedelta = timedelta(minutes=10)
    warm_up: timedelta = timedelta(minutes=10)
    least: int = 20
    gap: timedelta = timedelta(minutes=2)

    @property
    def normal(self) -> float:
        """A cost up to it times the usual one is back to normal: half the way, so that a drop does not flutter."""
        return 1 + (self.factor - 1) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at a job, all of whose pods run.

    ``attempt``: changes when a pod of the job is created. ``shape``: what two attempts must share to be comparable,
    such as the number of nodes and the version of the job's spec. ``by_node``: the costs of nodes, {} if unknown.
    """

    at: datetime
    attempt: str
    shape: str
    nodes: frozenset[str]
    cost: float
    by_node: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A run of the job with the same pods. ``costs``, ``spreads``: of its normal readings, the newest ones.

    A spread is the cost of the slowest node against the median of the others. ``slow``: a drop lasted in it.
    """

    key: str
    shape: str
    since: datetime
    nodes: frozenset[str]
    costs: tuple[float, ...] = ()
    spreads: tuple[float, ...] = ()
    slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Readings in a row that say the same: of a drop or of a return (``about`` ""), or of one slow node."""

    since: datetime
    count: int
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A drop that lasted. ``node``: which it follows; "" if it follows none. ``since``: its first reading.

    ``speed``: when it had lasted, against the node's peers (``of_peers``) or against the job's past; 1.0 is normal.
    """

    since: datetime
    shape: str
    node: str = ""
    speed: float = 1.0
    of_peers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is kept of a job. ``usual``: its usual cost, None while too little is known. ``cost``: the last one."""

    attempts: tuple[Attempt, ...] = ()
    at: datetime | None = None
    cost: float | None = None
    usual: float | None = None
    over: Run | None = None
    apart: Run | None = None
    back: Run | None = None
    drop: Drop | None = None

    def to_json(self) -> dict[str, Any]:
        """The past as a row stores it; its size is bounded."""
        attempts = [
            {**asdict(one), "since": one.since.isoformat(), "nodes": sorted(one.nodes)} for one in self.attempts
        ]
        whole = {"attempts": attempts, "cost": self.cost, "usual": self.usual}
        dated = {name: _dated(getattr(self, name)) for name in ("over", "apart", "back", "drop")}
        return {**whole, **dated, "at": self.at.isoformat() if self.at else None}

    @classmethod
    def from_json(cls, stored: Json) -> Self:
        """The past of ``to_json``; {} is one of which nothing is known."""
        attempts = tuple(
            Attempt(
                **{
                    **one,
                    "since": datetime.fromisoformat(one["since"]),
                    "nodes": frozenset(one["nodes"]),
                    "costs": tuple(one["costs"]),
                    "spreads": tuple(one["spreads"]),
                }
            )
            for one in stored.get("attempts", ())
        )
        runs = {name: _undated(Run, stored.get(name)) for name in ("over", "apart", "back")}
        at = stored.get("at")
        return cls(
            attempts=attempts,
            at=datetime.fromisoformat(at) if at else None,
            cost=stored.get("cost"),
            usual=stored.get("usual"),
            drop=_undated(Drop, stored.get("drop")),
            **runs,
        )


def is_usable(cost: float) -> bool:
    """Returns whether a value can be a cost. NaN, infinity, 0 and what is negative say nothing."""
    return math.isfinite(cost) and 0 < cost < 1e12


def judge(past: Past, reading: Reading, limits: Limits, *, others_slow: bool = False) -> Past:
    """The past with one more reading, and with the drop that it opens or ends.

    ``others_slow``: a drop of another job lasts. A cause that jobs share is likely, so no new node is accused.
    """
    if not is_usable(reading.cost) or not all(map(is_usable, reading.by_node.values())):
        return past
    past = _continued(past, reading, limits)
    attempt = past.attempts[-1]
    drop = past.drop if past.drop is not None and past.drop.shape == reading.shape else None
    past = replace(past, at=reading.at, cost=reading.cost, drop=drop)
    if reading.at - attempt.since < limits.warm_up:
        return replace(past, over=None, apart=None, back=None)
    usual = _usual((one.costs for one in _alike(past, reading.shape)), limits)
    usual_spread = _usual((one.spreads for one in _alike(past, reading.shape)), limits)
    node, spread = _slowest(reading.by_node, limits)
    over = usual is not None and reading.cost > limits.factor * usual
    apart = node if usual_spread is not None and spread > limits.factor * max(1.0, usual_spread) else ""
    past = replace(
        past,
        usual=usual,
        over=_run(past.over, reading.at, if_=over),
        apart=_run(past.apart, reading.at, if_=bool(apart), about=apart),
        back=_run(past.back, reading.at, if_=_is_back(past.drop, reading, usual, usual_spread, limits)),
    )
    if over or spread > limits.factor * max(1.0, usual_spread or math.inf):
        attempt = replace(attempt, slow=attempt.slow or _lasts(past.over, reading.at, limits))
    else:
        attempt = replace(
            attempt,
            costs=(*attempt.costs, _rounded(reading.cost))[-MAX_COSTS:],
            spreads=(*attempt.spreads, _rounded(spread))[-MAX_COSTS:] if spread else attempt.spreads,
        )
    past = replace(past, attempts=(*past.attempts[:-1], attempt))
    return replace(past, drop=_drop(past, reading, limits, spread=spread, others_slow=others_slow))


def ended(past: Past) -> Past:
    """The past of a job that does not run any more: nothing is slow."""
    return replace(past, over=None, apart=None, back=None, drop=None)


def _continued(past: Past, reading: Reading, limits: Limits) -> Past:
    """The past up to the reading: with its attempt, and without runs that it does not continue."""
    last = past.attempts[-1] if past.attempts else None
    is_same = last is not None and (last.key, last.shape) == (reading.attempt, reading.shape)
    is_behind = past.at is not None and reading.at <= past.at
    if last is None or not is_same:
        nodes = reading.nodes if len(reading.nodes) <= MAX_NODES else frozenset[str]()
        last = Attempt(key=reading.attempt, shape=reading.shape, since=reading.at, nodes=nodes)
        past = replace(past, attempts=(*past.attempts, last)[-MAX_ATTEMPTS:])
    elif is_behind:  # a clock was set back: the warm-up begins again
        past = replace(past, attempts=(*past.attempts[:-1], replace(last, since=reading.at)))
    if not is_same or is_behind or past.at is None or reading.at - past.at > limits.gap:
        return replace(past, over=None, apart=None, back=None)
    return past


def _alike(past: Past, shape: str) -> list[Attempt]:
    """The attempts that can be compared, the newest first."""
    return [one for one in reversed(past.attempts) if one.shape == shape]


def _usual(values: Iterable[tuple[float, ...]], limits: Limits) -> float | None:
    """The median of the newest values; None while there are too few."""
    newest = list(itertools.islice((value for of in values for value in reversed(of)), MAX_COSTS))
    return median(newest) if len(newest) >= limits.least else None


def _slowest(by_node: Mapping[str, float], limits: Limits) -> tuple[str, float]:
    """The one node that costs most, "" if several stand out, and its cost against the median of the others.

    0.0 if there are too few nodes, or too many.
    """
    if not LEAST_PEERS < len(by_node) <= MAX_NODES:
        return "", 0.0
    *others, (second, _), (node, cost) = sorted(by_node.items(), key=lambda pair: pair[1])
    spread = cost / median([*(value for _, value in others), by_node[second]])
    of_second = by_node[second] / median([*(value for _, value in others), cost])
    return ("" if of_second > limits.factor else node), spread


def _run(before: Run | None, at: datetime, *, if_: bool, about: str = "") -> Run | None:
    if not if_:
        return None
    if before is None or before.about != about:
        return Run(since=at, count=1, about=about)
    return replace(before, count=before.count + 1)


def _lasts(run: Run | None, at: datetime, limits: Limits) -> bool:
    return run is not None and run.count >= LEAST_OF_RUN and at - run.since >= limits.hold


def _is_back(
    drop: Drop | None, reading: Reading, usual: float | None, usual_spread: float | None, limits: Limits
) -> bool:
    """Returns whether the reading shows nothing of the drop any more."""
    if drop is None or usual is None or reading.cost > limits.normal * usual:
        return False
    others = [cost for name, cost in reading.by_node.items() if name != drop.node]
    if drop.node not in reading.by_node or len(others) < LEAST_PEERS:
        return True
    return reading.by_node[drop.node] <= limits.normal * max(1.0, usual_spread or 1.0) * median(others)


def _drop(past: Past, reading: Reading, limits: Limits, *, spread: float, others_slow: bool) -> Drop | None:
    if past.drop is not None and _lasts(past.back, reading.at, limits):
        return None
    is_over = past.over is not None and _lasts(past.over, reading.at, limits)
    if past.drop is not None and past.drop.node and (past.drop.node in reading.nodes or not is_over):
        return past.drop  # a job that is slow without the node clears it
    if past.apart is not None and _lasts(past.apart, reading.at, limits):
        speed = _rounded(1 / spread)
        return Drop(since=past.apart.since, shape=reading.shape, node=past.apart.about, speed=speed, of_peers=True)
    if past.over is not None and past.usual is not None and is_over:
        node = "" if others_slow else _newcomer(past, limits)
        speed = _rounded(past.usual / reading.cost)
        return Drop(since=past.over.since, shape=reading.shape, node=node, speed=speed)
    return past.drop


def _newcomer(past: Past, limits: Limits) -> str:
    """The one node that the slow attempt has and the normal one before had not; "" if it proves nothing.

    No attempt was normal with the node, and none was slow without it.
    """
    now, *earlier = _alike(past, past.attempts[-1].shape)
    if now.costs or not now.nodes:
        return ""
    normal = [one for one in earlier if len(one.costs) >= limits.least and not one.slow]
    joined = now.nodes - normal[0].nodes if normal else frozenset[str]()
    if len(joined) != 1:
        return ""
    [node] = joined
    is_clear = not any(node in one.nodes for one in earlier if one.costs)
    return node if is_clear and all(node in one.nodes for one in earlier if one.slow) else ""


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _dated(one: Run | Drop | None) -> dict[str, Any] | None:
    return {**asdict(one), "since": one.since.isoformat()} if one is not None else None


def _undated(made: type[Any], stored: Json | None) -> Any:
    return made(**{**stored, "since": datetime.fromisoformat(stored["since"])}) if stored else None
