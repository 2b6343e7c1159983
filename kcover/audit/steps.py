"""The outcomes of a rescue's steps, and what people did to a step."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kcover.audit.base import Act
from kcover.plans.plan import PlannedStep
from kcover.reasons import Reason


class StepAct(Act, subject="step {step} {name}"):
    """An act on one step: ``step`` is its place in the plan, from 0, and ``name`` its action."""

    rescue: int
    node: str
    step: int
    name: str


class StepSettled(StepAct):
    """The result of an attempt, and the resulting state of the step."""

    because: Reason | None
    attempt: int
    state: str


class StepDone(StepSettled, verb="step.done"):
    """The step succeeded."""


class StepAttemptFailed(StepSettled, verb="step.attempt_failed"):
    """The attempt failed in a way that is safe to repeat."""


class StepHeld(StepSettled, verb="step.held"):
    """The rescue stops at the step and asks a person."""


class StepFailed(StepSettled, verb="step.failed"):
    """The step cannot be done; the rescue ends."""


class StepStartedOver(StepSettled, verb="step.started_over"):
    """The steps did not help.

    ``steps`` and ``plan_hash``: the plan with its second round; both are empty if there is none and the rescue ends.
    """

    steps: tuple[PlannedStep, ...] = ()
    plan_hash: str = ""


class StepOverruled(StepSettled, verb="step.overruled"):
    """Somebody took the node back by hand; the rescue ends."""


class StepReplaced(StepSettled, verb="step.replaced"):
    """Another machine has the node's name now; the rescue ends."""


class GuardRefused(StepSettled, verb="guard.refused"):
    """A guard, a pause or the mode holds back what the step was about to do."""


class GuardPassed(Act, verb="guard.passed"):
    """The guards let an act of a rescue pass: the figures by which anybody can evaluate them again.

    ``act``: "isolation", or the destructive step. ``step``: its place in the plan; None: evaluated for the request.
    ``mode``: the mode that a destructive act was evaluated in.
    ``figures``: see ``guards.figures``; empty if limits do not apply, because the node has no GPUs.
    """

    rescue: int
    node: str
    act: str
    mode: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None

    @property
    def subject(self) -> str:
        return self.act if self.step is None else f"step {self.step} {self.act}"


class StepCommand(StepAct):
    """A person's command about the step at which a rescue was held."""

    plan_hash: str
    reason: str = ""


class StepRetried(StepCommand, verb="step.retried"):
    """The step was restarted from its beginning."""


class StepSkipped(StepCommand, verb="step.skipped"):
    """The rescue continued without the step. ``withdrawn``: the step's pending request, which was withdrawn."""

    withdrawn: Reason | None = None
