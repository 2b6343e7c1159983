"""Orders about training jobs."""

from dataclasses import dataclass
from typing import ClassVar

from kcover.audit.base import Act, register
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrderAct(Act):
    """An act on an order. ``kind`` and ``job`` (namespace/name): the job that it is about."""

    order: int
    kind: str
    job: str

    @property
    def subject(self) -> str:
        """The job."""
        return f"job {self.job}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrdered(JobOrderAct):
    """A restart or stop was ordered.

    ``cause``: who or what orders it; ``reason``: a person's own words; ``because``: the fault behind it, and
    ``incident`` its incident. ``passed_over``: the guards that an approver's order passes over.
    """

    VERB: ClassVar[str] = "job.ordered"

    action: str
    cause: str
    reason: str = ""
    because: Reason | None = None
    incident: int | None = None
    passed_over: tuple[Reason, ...] = ()


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrderSettled(JobOrderAct):
    """An order ended, or waits for a person. ``state``: how. ``channel``: the one that tells the job's owner."""

    VERB: ClassVar[str] = "job.settled"

    action: str
    state: str
    because: Reason | None
    channel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoveAct(Act):
    """A step of a rescue takes away the work of a job whose owner wants a message.

    ``action``: of the step. ``kind`` and ``job`` (namespace/name): the job. ``channel``: the one that the owner names.
    """

    rescue: int
    node: str
    step: int
    action: str
    kind: str
    job: str
    channel: str
    because: Reason

    @property
    def subject(self) -> str:
        """The job."""
        return f"job {self.job}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoving(JobMoveAct):
    """The step begins. ``because``: what it is about to do."""

    VERB: ClassVar[str] = "job.moving"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoved(JobMoveAct):
    """The step is done. ``because``: what it did."""

    VERB: ClassVar[str] = "job.moved"
