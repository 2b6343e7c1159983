"""The outcome of one run of a step: a frozen value with its reason, which the engine settles."""

from dataclasses import dataclass

from kcover.reasons import Reason


@dataclass(frozen=True, slots=True)
class Done:
    """The step reached its goal."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for ``seconds``; not a failure."""

    seconds: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class Poll(Wait):
    """Something else must happen first: check again after ``seconds``, and more rarely the longer the step waits.

    For what also wakes the rescue when it happens: a change of the node, or the agent's answer.
    """


@dataclass(frozen=True, slots=True)
class Postponed(Wait):
    """A guard, a pause or the mode holds the step back; it is evaluated again after ``seconds``."""


@dataclass(frozen=True, slots=True)
class HandedOver(Wait):
    """The node has been handed to an external system; check again after ``seconds``."""


@dataclass(frozen=True, slots=True)
class NeedsApproval(Wait):
    """A person must approve first; nothing more is done until then."""


@dataclass(frozen=True, slots=True)
class Retry:
    """It failed in a way that is safe to repeat; the engine backs off.

    ``after``: the shortest wait in seconds. ``counts``: whether this counts towards the failures after which a person
    is asked. A cluster that could not be reached at all says nothing about the step.
    """

    reason: Reason
    after: float | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Hold:
    """A person must decide what comes next; the node stays as it is."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot be done; the node stays isolated and a person is asked.

    ``outcome``: of the rescue, if others tell this end from other failures.
    """

    reason: Reason
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class StartOver:
    """The repair did not help: start a second round, if the limits allow it (invariant 39)."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Overruled:
    """Someone took the node back by hand; the rescue ends and removes its marks.

    ``left``: more than a cordon is the portal's. That stays, and a person is asked: the node's kubelet can uncordon.
    """

    reason: Reason
    left: bool = False


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another machine has the node's name now; the rescue ends and does nothing to it."""

    reason: Reason


Outcome = Done | Wait | Retry | Hold | Failed | StartOver | Overruled | Replaced
