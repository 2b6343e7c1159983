"""The parsed form of a document: policies, rules, actions, and the problems of an invalid document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from kcover.actions import in_policies
from kcover.reasons import Reason
from kcover.values import limits

KSYUN, KCOVER = "rescue.ksyun.com/v1", "kcover.io/v1"
RESCUE, STANDBY = "RescuePolicy", "WarmStandbyPolicy"
UNCORDON = "unCordon"  # an action, and an attribute of those that end with a node that could take work again
CHANNEL = "channel"  # the attribute of actions that tell people
DRAIN_TIMEOUTS = ("hold", "proceed", "force")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its path (keys and indexes from the root of the document) and what to write instead."""

    path: Path
    reason: Reason

    @property
    def message(self) -> str:
        """The English sentence."""
        return str(self.reason)


class PolicyInvalid(ValueError):
    """The document is not a valid policy; ``problems`` lists every problem found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, p.path))}: {p.message}" for p in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action as written: ``attribute`` holds its strings (waittime, unCordon, key, value, effect, ...)."""

    name: str
    attribute: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """The minimum number of occurrences of a fault: ``count`` times within the duration before the decision."""

    count: int
    within: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The approval that is required: by how many people, and when the request expires (None: the cluster's default)."""

    approvers: int = 1
    expires: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    It selects the union of ``codes`` (Xids), ``sxids``, ``checks`` (failed health checks by name), ``phrases`` (codes
    of other kinds, by kind) and ``kinds`` (every fault of the kind); without any of them it selects every fault of the
    node itself, Xid or SXid. ``application_faults`` False: ``kinds`` leave out the application faults of every kind;
    those of Xids and SXids they always leave out. ``labels`` None: any node. ``budget``: how many of its nodes the rule
    may keep isolated at one time. ``cooldown``: how long the rule does not act on a node again. ``minimum``: how often
    the fault must have occurred to match. ``validate``: the profile of the validation that the node must pass.
    ``probation``: how long the returned node stays on probation: a duration, "auto", or None for not at all.
    """

    index: int
    priority: int
    codes: tuple[str, ...] | None = None
    sxids: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    phrases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    application_faults: bool = True
    minimum: Minimum | None = None
    operator: str = "all"
    labels: Mapping[str, str] | None = None
    actions: tuple[Action, ...] = ()
    mode: str = "enforce"
    budget: limits.Limit | None = None
    cooldown: timedelta | None = None
    approval: Approval | None = None
    on_drain_timeout: str = ""  # one of DRAIN_TIMEOUTS; "": as the cluster says
    verify: bool = False
    verify_agent: bool = True
    validate: str | None = None
    probation: str | None = None
    escalate: str | None = None

    @property
    def any_fault(self) -> bool:
        """True if the rule names no fault, and so selects any fault of the node."""
        return self.codes is None and not (self.sxids or self.checks or self.phrases or self.kinds)

    @property
    def listed(self) -> Mapping[str, tuple[str, ...]]:
        """The codes that the rule lists, by kind."""
        return {"xid": self.codes or (), "sxid": self.sxids, "check": self.checks, **self.phrases}

    @property
    def channels(self) -> tuple[tuple[int, str], ...]:
        """The notification channels that its actions name, each with the index of the action."""
        return self.named(CHANNEL)

    def named(self, attribute: str) -> tuple[tuple[int, str], ...]:
        """The values of an attribute of its actions, each with the index of the action."""
        found = enumerate(action.attribute.get(attribute) for action in self.actions)
        return tuple((index, value) for index, value in found if value is not None)

    @property
    def uncordons(self) -> bool:
        """True if the node becomes schedulable again after the repair."""
        takes = {name for name, kind in in_policies().items() if UNCORDON in kind.attributes}
        return any(
            action.name == UNCORDON or (action.name in takes and action.attribute.get(UNCORDON) == "true")
            for action in self.actions
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One RescuePolicy document."""

    name: str
    api_version: str
    rules: tuple[Rule, ...]

    kind = RESCUE


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRule:
    """Nodes and the standbys that may replace them; a node must have all labels of its side."""

    index: int
    origin: Mapping[str, str]
    target: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyPolicy:
    """The WarmStandbyPolicy document; an installation has one at most."""

    name: str
    api_version: str
    matches: tuple[StandbyRule, ...]

    kind = STANDBY
