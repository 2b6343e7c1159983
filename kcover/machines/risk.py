"""The chance that a node or a GPU has a fault soon, from its faults so far.

Faults repeat: on a public trace of 400 GPU servers, nodes without a fault in 28 days have one in the next 28 with a
chance of .088, nodes with two or more with .25. The chance of a history is the mean of a Beta posterior. It starts from
a public trace, scaled to the fault rate of this fleet; each window of 28 days of the fleet itself counts more.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from kcover import reasons

WINDOW: Final = timedelta(days=28)  # of the history, and of the time that the chance is about
LEARNS: Final = timedelta(days=364)  # older histories are of other hardware and software
EPISODE: Final = timedelta(hours=1)
MAX_CHANCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Prior:
    """What public data says about one kind of part. ``by_faults``: the chance after 0, 1, 2 ... faults in WINDOW; the
    last one is for as many or more. ``base``: the chance of all parts. ``reason``: the code of its sentence.
    """

    by_faults: tuple[float, ...]
    base: float
    reason: str
    windows: int = 200  # it counts like so many windows of this fleet with the same history


# InfiniteHBD, days 28 to 100 (days 100 to 172: .085, .148, .235; all: .0925).
NODE: Final = Prior((0.088, 0.167, 0.254), base=0.0975, reason="risk_of_node")
# Titan: .055 faults a device-year; GPUs with a history have 9.7 times the faults of all.
GPU: Final = Prior((0.0041, 0.0405), base=0.0042, reason="risk_of_gpu")


@dataclass(frozen=True, slots=True)
class History:
    """One part: its faults in order of time, and since when they would have been seen."""

    since: datetime
    faults: Sequence[datetime] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """Of ``windows`` of parts with one history, ``faulty`` were followed by a fault within WINDOW."""

    windows: int = 0
    faulty: int = 0


@dataclass(frozen=True, slots=True)
class Learned:
    """What this fleet shows about a kind of part, by number of faults in WINDOW (at most the last of the prior)."""

    prior: Prior
    by_faults: Mapping[int, Seen] = field(default_factory=dict)

    @property
    def base(self) -> float:
        """The chance of a part about which nothing else is known."""
        seen = self.by_faults.values()
        return _mean(self.prior, self.prior.base, Seen(sum(s.windows for s in seen), sum(s.faulty for s in seen)))


@dataclass(frozen=True, slots=True)
class Risk:
    """The chance of a fault within WINDOW, and its basis. ``base``: the chance of all parts of the kind.

    ``seen``: the windows of this fleet with the same history.
    """

    probability: float
    base: float
    faults: int
    seen: Seen
    because: reasons.Reason

    @property
    def window_days(self) -> int:
        """Days of the history, and of the time that the chance is about."""
        return WINDOW.days


def episodes(opened: Iterable[datetime]) -> list[datetime]:
    """The faults of a part as episodes: those within EPISODE of the one before have one cause and count once."""
    found: list[datetime] = []
    last: datetime | None = None
    for at in sorted(opened):
        if last is None or at - last >= EPISODE:
            found.append(at)
        last = at
    return found


def learn(prior: Prior, histories: Iterable[History], *, now: datetime) -> Learned:
    """Counts the past windows of a fleet's parts, back to LEARNS before ``now``. They do not overlap."""
    windows: dict[int, int] = {}
    faulty: dict[int, int] = {}
    ends = [now - count * WINDOW for count in range(1, LEARNS // WINDOW)]
    for history in histories:
        for end in ends:
            if history.since > end - WINDOW:
                break
            known = _class(prior, _between(history.faults, end - WINDOW, end))
            windows[known] = windows.get(known, 0) + 1
            if _between(history.faults, end, end + WINDOW):
                faulty[known] = faulty.get(known, 0) + 1
    return Learned(prior, {known: Seen(count, faulty.get(known, 0)) for known, count in windows.items()})


def of_part(learned: Learned, faults: Sequence[datetime], *, now: datetime) -> Risk:
    """The risk of a part with these faults, in order of time."""
    return after(learned, _between(faults, now - WINDOW, now))


def after(learned: Learned, faults: int) -> Risk:
    """The risk of a part with so many faults in the last WINDOW."""
    prior = learned.prior
    known = _class(prior, faults)
    seen, base = learned.by_faults.get(known, Seen()), learned.base
    scaled = min(MAX_CHANCE, prior.by_faults[known] * base / prior.base)
    probability = _mean(prior, scaled, seen)
    because = reasons.of(
        prior.reason,
        faults=faults,
        days=WINDOW.days,
        permille=round(probability * 1000),
        base=round(base * 1000),
        windows=seen.windows,
    )
    return Risk(probability, base, faults, seen, because)


def _mean(prior: Prior, start: float, seen: Seen) -> float:
    return (prior.windows * start + seen.faulty) / (prior.windows + seen.windows)


def _class(prior: Prior, faults: int) -> int:
    return min(faults, len(prior.by_faults) - 1)


def _between(faults: Sequence[datetime], since: datetime, until: datetime) -> int:
    return bisect_left(faults, until) - bisect_left(faults, since)
