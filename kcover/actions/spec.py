"""The description of an action: everything that decisions, policies, the engine's control flow and pages need to know.

What an action does to a cluster is not here: the engine has one module for each name, with ``run(context)``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from kcover.actions.record import Args, JobsProgress, Progress
from kcover.reasons import Reason

Attributes = Mapping[str, str]
Refusal = Callable[[str], Reason | None]  # returns why a value is invalid, None if it is valid


class Stage(IntEnum):
    """The stages of a plan, in their fixed order.

    KCE's preconditions allow hardly any other order: drain cordons first, reboot needs a drain, unCordon comes after
    the reboot (KCE help page, table of actions).
    """

    KEEP_AWAY = 1  # nothing new is scheduled on the node
    NOTIFY = 2  # people are notified before work is taken away
    MOVE = 3  # the work moves: room for it first, then the jobs, then the rest
    REPAIR = 4  # the empty node is repaired
    PROVE = 5  # the node is verified to be healthy
    RETURN = 6  # the node takes work again
    HAND_OVER = 7  # a person takes over


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAction:
    """The syntax of the action in a rule of a policy.

    ``attributes``: each with its validator. ``required``: attributes that must be present. ``together``: the attribute
    that must be beside an attribute. ``needs``: groups of actions; the rule must have one of each group. ``excludes``:
    actions that the rule must not have as well, and why. ``own``: only for kcover.io/v1; the others are KCE's.
    ``when_saved``: further validators for texts that are saved. Policies that were saved before stay in force.
    ``needs_or``: in kcover.io/v1, a key of the rule that makes every group of ``needs`` superfluous. ``in_objects``: a
    policy that a cluster keeps as an object may have it, too.
    """

    name: str
    attributes: Mapping[str, Refusal] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    together: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[tuple[str, ...], ...] = ()
    excludes: Mapping[str, Reason] = field(default_factory=dict)
    own: bool = True
    needs_or: str = ""
    in_objects: bool = True
    when_saved: Mapping[str, Refusal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """The parts of a rule that matter to several actions.

    ``code``: of the reported fault. ``drain``: the attributes of the rule's drain, {} without one; every step that
    takes work away reads them for its wait for checkpoints.
    """

    code: str = ""
    on_drain_timeout: str = "hold"
    verify: bool = False
    verify_agent: bool = True
    validate: str | None = None
    uncordons: bool = False
    probation: str | None = None
    escalate: str | None = None
    drain: Attributes = field(default_factory=dict)


def no_args(_attributes: Attributes, _options: RuleOptions) -> Args:
    """For actions without arguments."""
    return Args()


def never(_options: RuleOptions) -> bool:
    """For actions that are requested only by a rule's list of actions, by another action or by a button."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """One action.

    ``name``: in plans, in the database and in the engine's registry. ``title``: the name for people, a message to
    translate. ``place``: its stage, and its order within the stage.
    """

    name: str
    title: str
    place: tuple[Stage, int]

    # --- how it gets into a plan
    policy: PolicyAction | None = None  # None: rules cannot list it among their actions
    requested_by: Callable[[RuleOptions], bool] = never  # whether another key of a rule requests it
    implies: tuple[str, ...] = ()  # steps that a policy's plan has in addition to it
    plan: Callable[[Attributes, RuleOptions], Args] = no_args
    args: type[Args] = Args
    progress: type[Progress] = Progress

    # --- what it means for the node
    isolates: bool = False  # takes the node out of scheduling, or work off it: the guards of isolation apply
    takes_work_away: bool = False  # ends running work: needs the approval, and the guards are evaluated right before it
    takes_work_away_if: Callable[[Any], bool] | None = None  # the same, depending on its arguments
    signals_if: Callable[[Any], bool] | None = None  # other controllers may act on it: approve mode asks before it
    mends: bool = False  # counted and limited, because a fault that keeps returning would repeat it for ever
    ends_boot: bool = False  # the machine boots anew; only another boot ID shows it
    destroys_evidence: bool = False  # ends what shows why the node is faulty: evidence is collected before it
    proves: bool = False  # its success proves that the node is healthy and closes the incidents from before it
    returns_node: bool = False  # the node takes work again
    ends_rescue: bool = False  # as a button it ends the rescue under way, and no guard holds it back
    calls_person: bool = False  # the rescue ends, and a person is asked to do the rest
    gives_node_away: bool = False  # another system may have the node until it calls back

    # --- what it requests; revoked when its rescue ends or an operator skips the step
    request_key: str = ""  # the first part of the keys of its requests to the node's agent or to another system

    @property
    def leaves_jobs(self) -> bool:
        """True if the step creates jobs in the cluster, which must be deleted."""
        return issubclass(self.progress, JobsProgress)

    @property
    def requests(self) -> bool:
        """True if the step requests what is withdrawn when its rescue ends: commands, jobs, a validation."""
        return bool(self.request_key) or self.leaves_jobs or self.destroys_evidence

    def takes_away(self, args: Mapping[str, Any]) -> bool:
        """Return whether a step with these arguments ends running work."""
        if self.takes_work_away or self.takes_work_away_if is None:
            return self.takes_work_away
        return self.takes_work_away_if(self.args.from_json(args))

    def signals(self, args: Mapping[str, Any]) -> bool:
        """Return whether another controller may act on what a step with these arguments sets."""
        return self.signals_if is not None and self.signals_if(self.args.from_json(args))

    @property
    def event_reason(self) -> str:
        """The reason of the Kubernetes Event of a finished step, such as RescueRunChecks."""
        return "Rescue" + "".join(part.capitalize() for part in self.name.split("_"))
