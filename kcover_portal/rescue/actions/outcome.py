"""How a run of a step ended: one frozen value, told to the engine, which settles it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """The wanted end is reached; ``note`` says how in a few words."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for ``seconds``; not a failure."""

    seconds: float
    because: str


@dataclass(frozen=True, slots=True)
class Refused(Wait):
    """A guard, a pause or the mode holds back what the step was about to do; asked again after ``seconds``."""


@dataclass(frozen=True, slots=True)
class Given(Wait):
    """The node is another system's for now, and the portal does nothing on it; looked at again after ``seconds``."""


@dataclass(frozen=True, slots=True)
class Ask(Wait):
    """A person must say yes first; until then nothing more is done."""


@dataclass(frozen=True, slots=True)
class Again:
    """It failed in a way that is safe to repeat; the engine backs off.

    ``counts``: towards the failures after which a person is asked. A cluster that was not reached at all says nothing
    about the step, and is reached again one day.
    """

    because: str
    after: float | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Hold:
    """A person has the next word; the node stays as it is."""

    because: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot be done; the node stays isolated and a person is asked."""

    because: str


@dataclass(frozen=True, slots=True)
class StartOver:
    """What was done did not help: the same once more, if that is not too often (invariant 39)."""

    because: str


@dataclass(frozen=True, slots=True)
class Overruled:
    """Somebody took the node back by hand; the rescue ends and removes its marks."""

    because: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """The machine that it is about is gone, and another has its name; the rescue ends and does nothing to that one."""

    because: str


Outcome = Done | Wait | Again | Hold | Failed | StartOver | Overruled | Replaced
