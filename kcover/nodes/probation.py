"""How long a repaired node stays on probation: until a repeat has become unlikely.

Most repeats come soon after the return of a node. The chance of a fault in the next 24 hours is estimated for each
candidate length from the fleet's own returns, as the mean of a Beta posterior: a class of fault starts from what the
whole fleet shows, and the fleet starts from a public trace of 400 GPU servers (bench/probation_replay.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from typing import Final

from kcover import reasons
from kcover.values import durations

AUTO: Final = "auto"  # a rule's word for a length that the portal chooses
NONE: Final = "none"
MAX_LENGTH: Final = timedelta(days=30)  # that a rule may set
BASIS_WINDOW: Final = timedelta(days=28)  # in which people are told the repeats of a class of fault

WINDOW: Final = timedelta(hours=24)  # of normal work after the probation; the chance is about this time
TARGET_CHANCE: Final = 0.02  # of a fault within WINDOW; half of the repeats that one may see on average
LEARNS: Final = timedelta(days=365)  # older returns are of other hardware and software

# Candidate lengths, each with the prior chance: the returns of days 0 to 100 of the trace, smoothed so that it falls.
PRIOR_CHANCES: Final = {
    timedelta(hours=0): 0.38,
    timedelta(hours=6): 0.135,
    timedelta(hours=12): 0.135,
    timedelta(hours=24): 0.083,
    timedelta(hours=48): 0.035,
    timedelta(hours=72): 0.025,
    timedelta(hours=96): 0.02,
    timedelta(hours=120): 0.018,
}
PRIOR_RETURNS: Final = 100  # the prior counts like so many returns of the fleet
FLEET_RETURNS: Final = 20  # the fleet counts like so many returns of a class of fault


@dataclass(frozen=True, slots=True)
class Return:
    """A node that was returned after a fault of this class. ``lasted``: how long it worked until the next fault, or has
    worked so far if ``repeated`` is False.
    """

    fault_class: str
    lasted: timedelta
    repeated: bool


@dataclass(frozen=True, slots=True)
class Chance:
    """The chance of a fault in the WINDOW that follows ``length``, as the mean of the posterior.

    ``repeats`` of ``returns`` of the class of fault had one; both are 0 if the class was never seen.
    """

    length: timedelta
    mean: float
    repeats: int
    returns: int


def chances(fault_class: str, past: Sequence[Return]) -> tuple[Chance, ...]:
    """The chance for each candidate length, shortest first. ``past``: the returns of the fleet within LEARNS."""
    same = [one for one in past if one.fault_class == fault_class]
    return tuple(_chance(length, prior, past=past, same=same) for length, prior in PRIOR_CHANCES.items())


def choose(fault_class: str, past: Sequence[Return]) -> Chance:
    """The shortest length from which on the chance stays at most TARGET_CHANCE; else the length with the least chance.

    A class of fault that comes back after two days is not safe because the first hours were quiet.
    """
    found = chances(fault_class, past)
    stays = list(takewhile(lambda chance: chance.mean <= TARGET_CHANCE, reversed(found)))
    return stays[-1] if stays else min(found, key=lambda chance: chance.mean)


def _chance(length: timedelta, prior: float, *, past: Sequence[Return], same: Sequence[Return]) -> Chance:
    repeats, returns = _count(past, length)
    fleet = (PRIOR_RETURNS * prior + repeats) / (PRIOR_RETURNS + returns)
    repeats, returns = _count(same, length)
    mean = (FLEET_RETURNS * fleet + repeats) / (FLEET_RETURNS + returns)
    return Chance(length, mean, repeats, returns)


def _count(past: Sequence[Return], length: timedelta) -> tuple[int, int]:
    """The returns with a fault in the WINDOW after ``length``, and all returns of which that WINDOW is known."""
    repeats = sum(one.repeated and length <= one.lasted < length + WINDOW for one in past)
    return repeats, repeats + sum(one.lasted >= length + WINDOW for one in past)


@dataclass(frozen=True, slots=True)
class Choice:
    """The length of one probation, and its basis."""

    length: timedelta
    because: reasons.Reason


def of_rule(written: str, *, fault_class: str, past: Sequence[Return]) -> Choice:
    """The length that a rule asks for. ``written``: a duration in the grammar of ``durations``, or AUTO.

    ``past``: see ``chances``; only AUTO needs it. A length of 0: no probation is needed.
    """
    if written != AUTO:
        length = durations.parse(written) or timedelta(0)
        return Choice(length, reasons.of("probation_by_rule", length=reasons.span(length)))
    chance = choose(fault_class, past)
    repeats, returns = _repeated_within([one for one in past if one.fault_class == fault_class], BASIS_WINDOW)
    because = reasons.of(
        "probation_by_chance",
        length=reasons.span(chance.length),
        fault_class=reasons.of(f"fault_class_{fault_class}"),
        repeats=repeats,
        returns=returns,
        days=BASIS_WINDOW.days,
        permille=round(chance.mean * 1000),
    )
    return Choice(chance.length, because)


def _repeated_within(past: Sequence[Return], window: timedelta) -> tuple[int, int]:
    """The returns with a fault within the window, and all returns of which that is known."""
    repeats = sum(one.repeated and one.lasted < window for one in past)
    return repeats, repeats + sum(one.lasted >= window for one in past)
