"""Answers to requests for approval, their cancellation, and the links by which people answer."""

from kcover.audit.rescues import RescueAct


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


class RescueApproved(Vote, verb="rescue.approved"):
    """A person approved. ``granted``: the step now has all the votes that it needs."""

    granted: bool


class RescueRejected(Vote, verb="rescue.rejected"):
    """A person rejected the step."""


class QuestionCancelled(RescueAct, verb="rescue.question_cancelled"):
    """An approver, or the requester, cancelled a request for the approval of two or more people."""

    step: int
    plan_hash: str
    reason: str = ""


class ApprovalLinkMade(RescueAct, verb="rescue.link_made"):
    """A signed link by which ``approver`` can answer. ``channel``: the notification channel that carries the link."""

    approver: str
    step: int
    plan_hash: str
    channel: str = ""
