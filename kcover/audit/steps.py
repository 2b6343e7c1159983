"""What came of a rescue's steps, and what people did to a step."""

from dataclasses import dataclass
from typing import ClassVar

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
    """How an attempt ended, and in which state it left the step."""

    because: Reason | None
    attempt: int
    state: str


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(StepSettled):
    """The step did what it is for."""

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
    """The steps did not help. ``steps`` and ``plan_hash``: the plan with its second round; empty where there is none,
    and the rescue ends."""

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
    """The node's name belongs to another machine now; the rescue ends."""

    VERB: ClassVar[str] = "step.replaced"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRefused(StepSettled):
    """A guard, a pause or the mode holds back what the step was about to do."""

    VERB: ClassVar[str] = "guard.refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCommand(StepAct):
    """What a person told a held rescue to do with the step that it stopped at."""

    plan_hash: str
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetried(StepCommand):
    """Once more, from its beginning."""

    VERB: ClassVar[str] = "step.retried"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped(StepCommand):
    """On without it. ``withdrawn``: what it had asked for and was taken off the offer."""

    VERB: ClassVar[str] = "step.skipped"

    withdrawn: Reason | None = None
