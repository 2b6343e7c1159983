"""What to do about one fault on one node: every fact goes in, a Decision with its reasons comes out.

``decide`` reads no clock and no table, so the same facts give the same answer whenever it is replayed.
"""

from dataclasses import dataclass, field
from datetime import datetime

from kcover import plan
from kcover.policy import document, matching

EXCLUDE_LABEL = "kcover.io/exclude"

# rescue: lay the plan down and run it. approve: lay it down, a person must say yes. shadow: it would have been done.
# hold: a rule matches, something holds it back, judge again later. none: nothing is to be done.
ANSWERS = ("rescue", "approve", "shadow", "hold", "none")


REPEATS = 5  # NVSentinel: after 5 remediations of one node in 168 h people take over


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node as the portal knows it. ``known``: the cluster has it. ``gpus``: its GPU capacity."""

    name: str
    known: bool
    gpus: int
    labels: dict[str, str] = field(default_factory=dict)
    open_rescue: int | None = None
    left_to_people: int | None = None  # the rescue that ended by handing the node to people
    isolated_by: int | None = None  # the closed rescue whose marks the node still carries
    isolated_plan: str = ""  # and the hash of its plan
    recent_rescues: int = 0  # policies' rescues with a reboot in the last seven days


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFacts:
    """An open incident, reduced to what a rule may ask about."""

    kind: str
    code: str
    cause: int | None = None
    fatal: bool | None = None  # the word that the log line itself printed
    count: int = 1
    drill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Settings that bound every decision in one cluster."""

    name: str
    installation_mode: str = "enforce"
    mode: str = "enforce"
    pause_reason: str = ""
    decision_mode: str = "policies"  # policies | external | both
    drills: str = "act"  # act | record


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that one decision is made from."""

    now: datetime
    fault: FaultFacts
    node: NodeFacts
    cluster: ClusterFacts
    rules: tuple[matching.Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer, always with its reasons, in the order in which they were weighed."""

    answer: str
    because: tuple[str, ...]
    mode: str
    rule: str | None = None
    policy: str | None = None
    revision: int | None = None
    steps: tuple[plan.PlannedStep, ...] = ()
    tried: tuple[matching.Tried, ...] = ()


def strictest(*modes: str) -> str:
    """The mode that wins: paused > shadow > approve > enforce."""
    return min(modes, key=document.MODES.index)


def decide(situation: Situation) -> Decision:
    """Judges one fault. A reason for doing nothing is as much an answer as a plan (rule 3 of the house)."""
    fault, node, cluster = situation.fault, situation.node, situation.cluster
    installed = strictest(cluster.installation_mode, cluster.mode)
    refusal = _beyond_rules(situation)
    if refusal:
        return Decision(answer="none", because=(refusal,), mode=installed)
    chosen, tried = matching.match(
        situation.rules, kind=fault.kind, code=fault.code, cause=fault.cause, labels=node.labels, fatal=fault.fatal
    )
    if chosen is None:
        return Decision(answer="none", because=_no_rule(tried), mode=installed, tried=tried)
    mode = strictest(installed, chosen.rule.mode)
    steps = plan.of_rule(chosen.rule, code=fault.code)
    answer, because = _weigh(situation, mode=mode, steps=steps)
    return Decision(
        answer=answer,
        because=(f"rule {chosen.name} (priority {chosen.rule.priority}) matches {fault.kind} {fault.code}", *because),
        mode=mode,
        rule=chosen.name,
        policy=chosen.policy,
        revision=chosen.revision,
        steps=steps,
        tried=tried,
    )


def _beyond_rules(situation: Situation) -> str | None:
    """Why no rule is even asked."""
    fault, node, cluster = situation.fault, situation.node, situation.cluster
    if not node.known:
        return f"the cluster {cluster.name} has no node {node.name}: its reports are kept, nothing is done to it"
    if node.gpus < 1:
        return f"node {node.name} has no GPUs, and policies act on GPU workers only"
    if fault.drill and cluster.drills == "record":
        return "a program wrote this line (a drill), and this cluster only records drills"
    if cluster.decision_mode == "external":
        return "this cluster leaves every decision to an external system (decision_mode external)"
    return None


def _no_rule(tried: tuple[matching.Tried, ...]) -> tuple[str, ...]:
    if not tried:
        return ("no policy is in force",)
    return tuple(f"rule {one.rule} does not match: {one.because}" for one in tried)


def _weigh(situation: Situation, *, mode: str, steps: tuple[plan.PlannedStep, ...]) -> tuple[str, tuple[str, ...]]:
    """The answer once a rule matches, and what holds it back, if anything."""
    node = situation.node
    if node.labels.get(EXCLUDE_LABEL) == "true":
        return "none", (f"node {node.name} carries {EXCLUDE_LABEL}=true: hands off",)
    if mode == "paused":
        why = situation.cluster.pause_reason
        return "hold", (f"everything is paused{': ' + why if why else ''}",)
    if node.open_rescue is not None:
        return "hold", (f"rescue {node.open_rescue} is open on this node, and a node has one rescue at a time",)
    if node.left_to_people is not None:
        return "hold", (f"rescue {node.left_to_people} left this node to people: release it to let policies act again",)
    if node.isolated_by is not None and plan.digest(steps) == node.isolated_plan:
        return "none", (f"rescue {node.isolated_by} did just this already, and the node is still isolated",)
    if node.recent_rescues >= REPEATS and any(step.name == "reboot" for step in steps):
        return "hold", (f"{node.recent_rescues} rescues rebooted this node in seven days: a person must look at it",)
    if mode == "shadow":
        return "shadow", ("shadow mode: this is what would have been done",)
    if mode == "approve":
        return "approve", ("approve mode: a person must say yes first",)
    return "rescue", ("nothing holds it back",)
