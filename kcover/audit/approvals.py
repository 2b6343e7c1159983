"""Answers to requests for approval, their cancellation, and the links by which people answer."""

from dataclasses import dataclass
from typing import ClassVar

from kcover.audit.base import register
from kcover.audit.rescues import RescueAct


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote(RescueAct):
    """A person's answer about the gated step. ``via``: the channel of the answer (console, rest or link).

    ``uid``: of the machine that the answer is about.
    ``controllers``: others who could have used the person's account, or made the link.
    """

    step: int
    plan_hash: str
    uid: str = ""
    reason: str = ""
    via: str = ""
    controllers: tuple[str, ...] = ()


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RescueApproved(Vote):
    """A person approved. ``granted``: the step now has all the votes that it needs."""

    VERB: ClassVar[str] = "rescue.approved"

    granted: bool


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RescueRejected(Vote):
    """A person rejected the step."""

    VERB: ClassVar[str] = "rescue.rejected"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionCancelled(RescueAct):
    """An approver, or the requester, cancelled a request for the approval of two or more people."""

    VERB: ClassVar[str] = "rescue.question_cancelled"

    step: int
    plan_hash: str
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalLinkMade(RescueAct):
    """A signed link by which ``approver`` can answer. ``channel``: the notification channel that carries the link."""

    VERB: ClassVar[str] = "rescue.link_made"

    approver: str
    step: int
    plan_hash: str
    channel: str = ""
