"""The outcomes of a rescue's steps, and what people did to a step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kcover.audit.base import Act, register
from kcover.plan import PlannedStep
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAct(Act):
    """An act on one step: ``step`` is its place in the plan, from 0, and ``name`` its action."""

    rescue: int
    node: str
    step: int
    name: str

    @property
    def subject(self) -> str:
        """The step."""
        return f"step {self.step} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettled(StepAct):
    """The result of an attempt, and the resulting state of the step."""

    because: Reason | None
    attempt: int
    state: str


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(StepSettled):
    """The step succeeded."""

    VERB: ClassVar[str] = "step.done"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepAttemptFailed(StepSettled):
    """The attempt failed in a way that is safe to repeat."""

    VERB: ClassVar[str] = "step.attempt_failed"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepHeld(StepSettled):
    """The rescue stops at the step and asks a person."""

    VERB: ClassVar[str] = "step.held"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed(StepSettled):
    """The step cannot be done; the rescue ends."""

    VERB: ClassVar[str] = "step.failed"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepStartedOver(StepSettled):
    """The steps did not help.

    ``steps`` and ``plan_hash``: the plan with its second round; both are empty if there is none and the rescue ends.
    """

    VERB: ClassVar[str] = "step.started_over"

    steps: tuple[PlannedStep, ...] = ()
    plan_hash: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepOverruled(StepSettled):
    """Somebody took the node back by hand; the rescue ends."""

    VERB: ClassVar[str] = "step.overruled"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepReplaced(StepSettled):
    """Another machine has the node's name now; the rescue ends."""

    VERB: ClassVar[str] = "step.replaced"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRefused(StepSettled):
    """A guard, a pause or the mode holds back what the step was about to do."""

    VERB: ClassVar[str] = "guard.refused"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPassed(Act):
    """The guards let an act of a rescue pass: the figures by which anybody can evaluate them again.

    ``act``: "isolation", or the destructive step. ``step``: its place in the plan; None: evaluated for the request.
    ``mode``: the mode that a destructive act was evaluated in.
    ``figures``: see ``guards.figures``; empty if limits do not apply, because the node has no GPUs.
    """

    VERB: ClassVar[str] = "guard.passed"

    rescue: int
    node: str
    act: str
    mode: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None

    @property
    def subject(self) -> str:
        """The act."""
        return self.act if self.step is None else f"step {self.step} {self.act}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCommand(StepAct):
    """A person's command about the step at which a rescue was held."""

    plan_hash: str
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetried(StepCommand):
    """The step was restarted from its beginning."""

    VERB: ClassVar[str] = "step.retried"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped(StepCommand):
    """The rescue continued without the step. ``withdrawn``: the step's pending request, which was withdrawn."""

    VERB: ClassVar[str] = "step.skipped"

    withdrawn: Reason | None = None
