"""What a document comes down to: policies, rules, actions, and the mistakes of one that is no policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from kcover import limits

KSYUN, KCOVER = "rescue.ksyun.com/v1", "kcover.io/v1"
RESCUE, STANDBY = "RescuePolicy", "WarmStandbyPolicy"
MODES = ("paused", "shadow", "approve", "enforce")  # strictest first
RULE_MODES = ("shadow", "approve", "enforce")
DRAIN_TIMEOUTS = ("hold", "proceed", "force")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is (keys and indexes from the root of the document) and what to write instead."""

    path: Path
    message: str


class PolicyInvalid(ValueError):
    """A document that is no policy; ``problems`` lists every mistake found."""

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
    """How often a fault must have been seen: ``count`` times within the time before the judgement."""

    count: int
    within: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """That people must say yes first: how many, and how long the question stands (None: the cluster's default)."""

    approvers: int = 1
    expires: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    What faults it means is the union of ``codes`` (Xids), ``sxids``, ``checks`` (failed health checks by name) and
    ``kinds`` (every fault of the kind); where none of them says anything it means any fault of the node, Xid or SXid.
    ``labels`` None: any node. ``budget``: nodes that the rule may hold isolated at one time, of those it selects.
    ``cooldown``: how long the rule leaves a node alone after it acted there. ``minimum``: seen too seldom, no match.
    """

    index: int
    priority: int
    codes: tuple[str, ...] | None = None
    sxids: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    minimum: Minimum | None = None
    operator: str = "all"
    labels: Mapping[str, str] | None = None
    actions: tuple[Action, ...] = ()
    mode: str = "enforce"
    budget: limits.Limit | None = None
    cooldown: timedelta | None = None
    approval: Approval | None = None
    on_drain_timeout: str = "hold"
    verify: bool = False
    verify_agent: bool = True
    escalate: str | None = None

    @property
    def any_fault(self) -> bool:
        """Whether the rule names no fault, and so means any fault of the node."""
        return self.codes is None and not (self.sxids or self.checks or self.kinds)

    @property
    def uncordons(self) -> bool:
        """Whether the node is to be schedulable again after the repair."""
        return any(
            action.name == "unCordon"
            or (action.name in ("reboot", "gpuReset") and action.attribute.get("unCordon") == "true")
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
    """Which standbys may replace which nodes: all labels of a side must be there (semantics section 4)."""

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
