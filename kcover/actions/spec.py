"""The description of one action: everything that decisions, policies, the engine's control flow and pages ask about it.

What an action does to a cluster is not here: the engine has one module for each name, with ``run(context)``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from kcover.actions.record import Args, JobsProgress, Progress

Attributes = Mapping[str, str]
Refusal = Callable[[str], str | None]  # why a value is refused; None: it is taken


class Stage(IntEnum):
    """The stages of a plan, in their fixed order.

    KCE's preconditions allow hardly any other order: drain cordons first, reboot needs a drain, unCordon comes after
    the reboot (KCE help page, table of actions).
    """

    KEEP_AWAY = 1  # nothing new is scheduled on the node
    TELL = 2  # people are told before anything is taken away
    MOVE = 3  # the work moves: first room for it, then the jobs, then what is left
    REPAIR = 4  # the empty node is mended
    PROVE = 5  # the node is proved healthy
    RETURN = 6  # the node takes work again
    HAND_OVER = 7  # a person has the next word


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAction:
    """How a rule of a policy names the action.

    ``attributes``: each with what refuses its value. ``required``: attributes that must be there. ``needs``: groups of
    actions, one of each group must be beside it. ``excludes``: actions that make no sense beside it, and why. ``own``:
    for kcover.io/v1 only; the others are KCE's.
    """

    name: str
    attributes: Mapping[str, Refusal] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    needs: tuple[tuple[str, ...], ...] = ()
    excludes: Mapping[str, str] = field(default_factory=dict)
    own: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """What a rule says beside its actions. ``code``: of the fault that was reported."""

    code: str = ""
    on_drain_timeout: str = "hold"
    verify: bool = False
    verify_agent: bool = True
    uncordons: bool = False
    escalate: str | None = None


def no_args(_attributes: Attributes, _options: RuleOptions) -> Args:
    """For actions that a plan tells nothing."""
    return Args()


def never(_options: RuleOptions) -> bool:
    """For actions that only the list of a rule's actions, another action or a button asks for."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """One action.

    ``name``: in plans, in the database and in the engine's registry. ``title``: what people call it, a message to
    translate. ``place``: its stage, and its order within the stage.
    """

    name: str
    title: str
    place: tuple[Stage, int]

    # --- how it comes into a plan
    policy: PolicyAction | None = None  # None: no rule lists it among its actions
    asked_by: Callable[[RuleOptions], bool] = never  # whether another key of a rule asks for it
    implies: tuple[str, ...] = ()  # steps that a plan of a policy has with it
    plan: Callable[[Attributes, RuleOptions], Args] = no_args
    args: type[Args] = Args
    progress: type[Progress] = Progress

    # --- what it means for the node
    isolates: bool = False  # takes the node out of scheduling, or work off it: held against the guards of isolation
    takes_work_away: bool = False  # ends running work: needs the approval, and the guards right before it
    takes_work_away_if: Callable[[Any], bool] | None = None  # the same, by its arguments
    mends: bool = False  # a fault that comes back would have it repeated for ever: counted, and limited
    proves: bool = False  # its success proves the node healthy and closes the incidents from before it
    returns_node: bool = False  # the node takes work again; as a button it ends whatever is under way
    calls_person: bool = False  # the rescue ends with a person asked to do the rest
    gives_node_away: bool = False  # another system may have the node until it calls back

    # --- what it requests; revoked when its rescue ends or an operator skips it
    request_key: str = ""  # the first word of the keys of its requests to the node's agent or to another system

    @property
    def leaves_jobs(self) -> bool:
        """Whether its progress names jobs on the cluster, which are deleted."""
        return issubclass(self.progress, JobsProgress)

    def takes_away(self, args: Mapping[str, Any]) -> bool:
        """Whether a step with these arguments ends running work."""
        if self.takes_work_away or self.takes_work_away_if is None:
            return self.takes_work_away
        return self.takes_work_away_if(self.args.from_json(args))

    @property
    def event_reason(self) -> str:
        """The reason of the Kubernetes Event of a finished step: RescueRunChecks."""
        return "Rescue" + "".join(word.capitalize() for word in self.name.split("_"))
