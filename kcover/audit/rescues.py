"""A rescue and its steps, from the decision to the end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from kcover import reasons
from kcover.audit.base import Act, register
from kcover.plan import PlannedStep
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


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMade(Act):
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
    def verbs(cls) -> Mapping[str, Mapping[str, Any]]:
        """``decision.<answer>``."""
        return {cls.verb_of(answer): {"answer": answer} for answer in DecisionAnswer}

    @staticmethod
    def verb_of(answer: DecisionAnswer) -> str:
        """``decision.<answer>``."""
        return f"decision.{answer.value}"

    @property
    def verb(self) -> str:
        """``decision.<answer>``."""
        return self.verb_of(self.answer)

    @property
    def subject(self) -> str:
        """The incident."""
        return f"incident {self.incident}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StormOpened(Act):
    """Automation stops for a symptom on ``nodes`` nodes.

    ``kind``: of a fault's code; "" for other traits. ``reached``: the smallest number of nodes that counts as a storm.
    """

    VERB: ClassVar[str] = "storm.opened"

    incident: int
    trait: str
    kind: str
    value: str
    nodes: int
    reached: int

    @property
    def subject(self) -> str:
        """The incident of the storm."""
        return f"incident {self.incident}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRefused(Act):
    """A request that was refused. ``requested``: names of the steps; ``reason``: the requester's own words.

    ``override``: the guards that it asked to pass over; ``xid``: the code that a decision system named.
    """

    VERB: ClassVar[str] = "request.refused"

    node: str
    requested: tuple[str, ...]
    because: Reason
    reason: str = ""
    override: tuple[str, ...] = ()
    xid: int | None = None

    @property
    def subject(self) -> str:
        """The node."""
        return f"node {self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueAct(Act):
    """An act on a whole rescue."""

    rescue: int
    node: str

    @property
    def subject(self) -> str:
        """The rescue."""
        return f"rescue {self.rescue}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RescueOpened(RescueAct):
    """A rescue with its plan.

    ``overrides``: guards that a named person may pass over; ``passed_over``: guards that were passed over;
    ``reason``: a person's own words; ``because``: the portal's reason if no person requested it. ``decision``: the
    decision that asked for it; None for a request. ``uid``: of the machine. ``gate``: the step that needs approval, by
    ``approvers`` people within ``approval_seconds``; None if no step needs it. ``requesters``:
    the people who count as the requester. ``on_probation``: the node was on probation, so its repairs count twice.
    """

    VERB: ClassVar[str] = "rescue.opened"

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


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RescueHeld(RescueAct):
    """The rescue waits for a person's approval before the step."""

    VERB: ClassVar[str] = "rescue.held"

    step: int
    name: str
    because: Reason | None


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RescueCalledBack(RescueAct):
    """The system that had the node reported ``outcome``: done or failed. ``message``: its own words."""

    VERB: ClassVar[str] = "rescue.called_back"

    outcome: str
    message: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RescueEnded(RescueAct):
    """The rescue is closed. ``withdrawn``: its pending request, which was withdrawn with it."""

    state: RescueEnd
    outcome: str
    needs_human: bool
    because: Reason | None
    withdrawn: Reason | None = None

    @classmethod
    def verbs(cls) -> Mapping[str, Mapping[str, Any]]:
        """``rescue.<state>``."""
        return {f"rescue.{state.value}": {"state": state} for state in RescueEnd}

    @property
    def verb(self) -> str:
        """``rescue.<state>``."""
        return f"rescue.{self.state.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarksAct(Act):
    """The marks on a node differed from the portal's rows."""

    rescue: int
    node: str

    @property
    def subject(self) -> str:
        """The node."""
        return f"node {self.node}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class MarksGone(MarksAct):
    """The node no longer carries the marks of the rescue."""

    VERB: ClassVar[str] = "marks.gone"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class MarksFound(MarksAct):
    """The node carries marks of a rescue whose rows had none."""

    VERB: ClassVar[str] = "marks.found"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRuleGone(MarksAct):
    """Somebody deleted the DeviceTaintRule with which the rescue isolated a device. The rescue needs a person."""

    VERB: ClassVar[str] = "marks.device_rule_gone"

    because: Reason


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnsweredLate(Act):
    """An agent answered a command after the rescue had stopped waiting for it. ``message``: the agent's own words.

    ``withdrawn``: the command had been withdrawn, but the agent had fetched it before.
    """

    VERB: ClassVar[str] = "command.late"

    rescue: int
    node: str
    command: str
    kind: str
    key: str
    status: str
    message: str = ""
    withdrawn: bool = False

    @property
    def subject(self) -> str:
        """The command."""
        return f"command {self.command}"

    @property
    def explanation(self) -> Reason:
        """The agent's answer."""
        code = "late_answer_withdrawn" if self.withdrawn else "late_answer"
        return reasons.of(code, answer=reasons.state(self.status, self.message))
