"""What to do about one fault on one node: every fact goes in, a Decision with its reasons comes out.

``decide`` reads no clock and no table, so the same facts give the same answer whenever it is replayed.
"""

from dataclasses import dataclass, field
from datetime import datetime

from kcover import plan, reasons
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
    seen_within: dict[int, int] = field(default_factory=dict)  # sightings in the last so many s (matching.windows)
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
    because: tuple[reasons.Reason, ...]
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
        situation.rules,
        kind=fault.kind,
        code=fault.code,
        cause=fault.cause,
        labels=node.labels,
        fatal=fault.fatal,
        seen_within=fault.seen_within,
    )
    if chosen is None:
        return Decision(answer="none", because=_no_rule(tried), mode=installed, tried=tried)
    mode = strictest(installed, chosen.rule.mode)
    steps = plan.of_rule(chosen.rule, code=fault.code)
    answer, because = _weigh(situation, mode=mode, steps=steps)
    return Decision(
        answer=answer,
        because=(
            reasons.of(
                "rule_matches",
                rule=chosen.name,
                priority=chosen.rule.priority,
                kind=fault.kind,
                code=fault.code,
            ),
            because,
        ),
        mode=mode,
        rule=chosen.name,
        policy=chosen.policy,
        revision=chosen.revision,
        steps=steps,
        tried=tried,
    )


def _beyond_rules(situation: Situation) -> reasons.Reason | None:
    """Why no rule is even asked."""
    fault, node, cluster = situation.fault, situation.node, situation.cluster
    if not node.known:
        return reasons.of("node_unknown", cluster=cluster.name, node=node.name)
    if node.gpus < 1:
        return reasons.of("node_without_gpus", node=node.name)
    if fault.drill and cluster.drills == "record":
        return reasons.of("drill_recorded")
    if cluster.decision_mode == "external":
        return reasons.of("left_to_external")
    return None


def _no_rule(tried: tuple[matching.Tried, ...]) -> tuple[reasons.Reason, ...]:
    if not tried:
        return (reasons.of("no_policy"),)
    return tuple(reasons.of("rule_mismatch", rule=one.rule, why=one.because) for one in tried)


def _weigh(situation: Situation, *, mode: str, steps: tuple[plan.PlannedStep, ...]) -> tuple[str, reasons.Reason]:
    """The answer once a rule matches, and what holds it back, if anything."""
    node = situation.node
    if node.labels.get(EXCLUDE_LABEL) == "true":
        return "none", reasons.of("excluded", node=node.name, label=EXCLUDE_LABEL)
    if mode == "paused":
        why = situation.cluster.pause_reason
        return "hold", reasons.of("paused_because", why=why) if why else reasons.of("paused")
    if node.open_rescue is not None:
        return "hold", reasons.of("rescue_open", rescue=str(node.open_rescue))
    if node.left_to_people is not None:
        return "hold", reasons.of("left_to_people", rescue=str(node.left_to_people))
    if node.isolated_by is not None and plan.digest(steps) == node.isolated_plan:
        return "none", reasons.of("done_already", rescue=str(node.isolated_by))
    if node.recent_rescues >= REPEATS and any(step.name == "reboot" for step in steps):
        return "hold", reasons.of("reboots_repeat", rescues=node.recent_rescues)
    if mode == "shadow":
        return "shadow", reasons.of("shadow")
    if mode == "approve":
        return "approve", reasons.of("approve")
    return "rescue", reasons.of("nothing_holds_back")
