"""Orders about training jobs."""

from kcover.audit.base import Act
from kcover.reasons import Reason


class JobOrderAct(Act, subject="job {job}"):
    """An act on an order. ``kind`` and ``job`` (namespace/name): the job that it is about."""

    order: int
    kind: str
    job: str


class JobOrdered(JobOrderAct, verb="job.ordered"):
    """A restart or stop was ordered.

    ``cause``: who or what orders it; ``reason``: a person's own words; ``because``: the fault behind it, and
    ``incident`` its incident. ``passed_over``: the guards that an approver's order passes over.
    """

    action: str
    cause: str
    reason: str = ""
    because: Reason | None = None
    incident: int | None = None
    passed_over: tuple[Reason, ...] = ()


class JobOrderSettled(JobOrderAct, verb="job.settled"):
    """An order ended, or waits for a person. ``state``: how. ``channel``: the one that tells the job's owner."""

    action: str
    state: str
    because: Reason | None
    channel: str = ""


class JobMoveAct(Act, subject="job {job}"):
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


class JobMoving(JobMoveAct, verb="job.moving"):
    """The step begins. ``because``: what it is about to do."""


class JobMoved(JobMoveAct, verb="job.moved"):
    """The step is done. ``because``: what it did."""
