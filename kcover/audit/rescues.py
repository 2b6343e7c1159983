"""A rescue and its steps, from the decision to the end."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from kcover import reasons
from kcover.audit.base import Act
from kcover.plans.plan import PlannedStep
from kcover.reasons import Reason


class DecisionAnswer(StrEnum):
    """The answers of a decision."""

    RESCUE = "rescue"
    APPROVE = "approve"
    HOLD = "hold"
    SHADOW = "shadow"
    NONE = "none"


class RescueEnd(StrEnum):
    """The states in which a rescue is closed."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DecisionMade(Act, verb="decision.{answer}", subject="incident {incident}"):
    """A decision about an open incident.

    ``facts``: the digest of the facts that it depends on (``Decision.facts``); "" if the answer opens no rescue.
    """

    incident: int
    node: str
    decision: int
    answer: DecisionAnswer
    mode: str
    revision: int | None
    because: tuple[Reason, ...]
    facts: str

    @classmethod
    def verb_of(cls, answer: DecisionAnswer) -> str:
        """The verb of entries with this answer."""
        return cls.VERB.format(answer=answer)


class StormOpened(Act, verb="storm.opened", subject="incident {incident}"):
    """Automation stops for a symptom on ``nodes`` nodes.

    ``kind``: of a fault's code; "" for other traits. ``reached``: the smallest number of nodes that counts as a storm.
    """

    incident: int
    trait: str
    kind: str
    value: str
    nodes: int
    reached: int


class RequestRefused(Act, verb="request.refused", subject="node {node}"):
    """A request that was refused. ``requested``: names of the steps; ``reason``: the requester's own words.

    ``override``: the guards that it asked to pass over; ``xid``: the code that a decision system named.
    """

    node: str
    requested: tuple[str, ...]
    because: Reason
    reason: str = ""
    override: tuple[str, ...] = ()
    xid: int | None = None


class RescueAct(Act, subject="rescue {rescue}"):
    """An act on a whole rescue."""

    rescue: int
    node: str


class RescueOpened(RescueAct, verb="rescue.opened"):
    """A rescue with its plan.

    ``overrides``: guards that a named person may pass over; ``passed_over``: guards that were passed over;
    ``reason``: a person's own words; ``because``: the portal's reason if no person requested it. ``decision``: the
    decision that asked for it; None for a request. ``uid``: of the machine. ``gate``: the step that needs approval, by
    ``approvers`` people within ``approval_seconds``; None if no step needs it. ``requesters``:
    the people who count as the requester. ``on_probation``: the node was on probation, so its repairs count twice.
    """

    steps: tuple[PlannedStep, ...]
    plan_hash: str
    state: str
    reason: str = ""
    because: Reason | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    passed_over: tuple[Reason, ...] = ()
    origin: str = ""
    requester: str = ""
    decision: int | None = None
    rule: str = ""
    revision: int | None = None
    uid: str = ""
    gate: int | None = None
    approvers: int = 1
    approval_seconds: int | None = None
    requesters: tuple[str, ...] = ()
    on_probation: bool = False


class RescueHeld(RescueAct, verb="rescue.held"):
    """The rescue waits for a person's approval before the step."""

    step: int
    name: str
    because: Reason | None


class RescueCalledBack(RescueAct, verb="rescue.called_back"):
    """The system that had the node reported ``outcome``: done or failed. ``message``: its own words."""

    outcome: str
    message: str = ""


class RescueEnded(RescueAct, verb="rescue.{state}"):
    """The rescue is closed. ``withdrawn``: its pending request, which was withdrawn with it."""

    state: RescueEnd
    outcome: str
    needs_human: bool
    because: Reason | None
    withdrawn: Reason | None = None


class MarksAct(Act, subject="node {node}"):
    """The marks on a node differed from the portal's rows."""

    rescue: int
    node: str


class MarksGone(MarksAct, verb="marks.gone"):
    """The node no longer carries the marks of the rescue."""


class MarksFound(MarksAct, verb="marks.found"):
    """The node carries marks of a rescue whose rows had none."""


class DeviceRuleGone(MarksAct, verb="marks.device_rule_gone"):
    """Somebody deleted the DeviceTaintRule with which the rescue isolated a device. The rescue needs attention."""

    because: Reason


class CommandAnsweredLate(Act, verb="command.late", subject="command {command}"):
    """An agent answered a command after the rescue had stopped waiting for it. ``message``: the agent's own words.

    ``withdrawn``: the command had been withdrawn, but the agent had fetched it before.
    """

    rescue: int
    node: str
    command: str
    kind: str
    key: str
    status: str
    message: str = ""
    withdrawn: bool = False

    @property
    def explanation(self) -> Reason:
        """The agent's answer."""
        code = "late_answer_withdrawn" if self.withdrawn else "late_answer"
        return reasons.of(code, answer=reasons.state(self.status, self.message))
