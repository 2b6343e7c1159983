"""What to do about one fault on one node: every fact goes in, a Decision with its reasons comes out.

``decide`` reads no clock and no table, so the same facts give the same answer whenever it is replayed.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime

from kcover import guards, plan, reasons
from kcover.policy import document, matching

EXCLUDE_LABEL = guards.EXCLUDE_LABEL

# rescue: lay the plan down and run it. approve: lay it down, a person must say yes. shadow: it would have been done.
# hold: a rule matches, something holds it back, judge again later. none: nothing is to be done.
ANSWERS = ("rescue", "approve", "shadow", "hold", "none")

# Reasons to hold that end by a person's doing only, whom they are to be told to.
ASKING = ("reboots_repeat", "inspection")

# Steps that take a node out of scheduling, or work off it: plans with one of them are weighed by the guards.
ISOLATING = plan.DESTRUCTIVE | {"cordon", "taint"}


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
    recent_rescues: int = 0  # reboots and resets of programs' rescues within the window of the guards' ``repeats``
    rebooted_since: bool = False  # the agent reports another boot since the fault was last seen
    unshown_boot: str = ""  # the boot that it was seen in, where nobody knows whether it is over or has just begun
    reboots_for_code: int = 0  # reboots for the code at hand within the window of the guards' ``ladder``


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
    last_seen_at: datetime | None = None  # the portal's own clock; None: what is held back does not expire


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
    """Everything that one decision is made from. ``counts`` None: nothing was counted, and no guard is asked.

    Counting is dear, and most of what is judged again waits for something else: see ``asks_guards``.
    """

    now: datetime
    fault: FaultFacts
    node: NodeFacts
    cluster: ClusterFacts
    rules: tuple[matching.Candidate, ...]
    settings: guards.Settings = field(default_factory=guards.Settings)
    counts: guards.Facts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer, always with its reasons, in the order in which they were weighed.

    ``passed``: the guards that were asked and held nothing back. ``again_at``: when an answer ``hold`` is to be judged
    again. ``storm``: what held it back is a storm, of which there is one incident and no act on a node.
    """

    answer: str
    because: tuple[reasons.Reason, ...]
    mode: str
    rule: str | None = None
    policy: str | None = None
    revision: int | None = None
    steps: tuple[plan.PlannedStep, ...] = ()
    tried: tuple[matching.Tried, ...] = ()
    passed: tuple[reasons.Reason, ...] = ()
    again_at: datetime | None = None
    storm: guards.Storm | None = None


def strictest(*modes: str) -> str:
    """The mode that wins: paused > shadow > approve > enforce."""
    return min(modes, key=document.MODES.index)


def decide(situation: Situation) -> Decision:
    """Judges one fault. A reason for doing nothing is as much an answer as a plan (rule 3 of the house)."""
    fault, cluster = situation.fault, situation.cluster
    installed = strictest(cluster.installation_mode, cluster.mode)
    refusal = _beyond_rules(situation)
    if refusal:
        return Decision(answer="none", because=(refusal,), mode=installed)
    chosen, tried = _match(situation)
    if chosen is None:
        return Decision(answer="none", because=_no_rule(tried), mode=installed, tried=tried)
    matched = reasons.of(
        "rule_matches", rule=chosen.name, priority=chosen.rule.priority, kind=fault.kind, code=fault.code
    )
    weighed = _weigh(situation, chosen)
    return replace(weighed, because=(matched, *weighed.because), tried=tried)


def asks_guards(situation: Situation) -> bool:
    """Whether the answer depends on ``counts``: a rule matches, and neither a person, a pause, another rescue nor what
    was done already has the word before the guards. Whoever decides: an external system's word is weighed likewise."""
    chosen, _ = _match(situation)
    if chosen is None:
        return False
    judged = _planned(situation, chosen)
    return _taken(situation, judged) is None and _stop(situation, judged) is None


def helps_nobody(situation: Situation, steps: tuple[plan.PlannedStep, ...]) -> reasons.Reason | None:
    """Why a plan that another system asks for would help nobody, by what was done on the node before; no rule is asked.

    Not what the guards weigh: they are asked beside this.
    """
    if situation.node.left_to_people is not None:
        return reasons.of("left_to_people", rescue=str(situation.node.left_to_people))
    return _stop(situation, Decision(answer="none", because=(), mode="enforce", steps=steps))


def _match(situation: Situation) -> tuple[matching.Candidate | None, tuple[matching.Tried, ...]]:
    fault = situation.fault
    return matching.match(
        situation.rules,
        kind=fault.kind,
        code=fault.code,
        cause=fault.cause,
        labels=situation.node.labels,
        fatal=fault.fatal,
        seen_within=fault.seen_within,
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


def _weigh(situation: Situation, chosen: matching.Candidate) -> Decision:
    """The answer once a rule matches, and what holds it back, if anything; the caller adds the match itself."""
    judged = _planned(situation, chosen)
    taken = _taken(situation, judged)
    if taken is not None:
        return taken
    stop = _stop(situation, judged)
    if stop is not None:
        return _hold(situation, judged, stop)
    verdict = _guards(situation, chosen, steps=judged.steps)
    if verdict is not None:
        judged = replace(judged, passed=verdict.passed)
        if verdict.held:
            found = guards.storm(situation.settings, situation.counts) if situation.counts else None
            return _hold(situation, replace(judged, storm=found), *verdict.held, again_at=verdict.again_at)
    if judged.mode == "shadow":
        return replace(judged, answer="shadow", because=(reasons.of("shadow"),))
    if judged.mode == "approve":
        return replace(judged, answer="approve", because=(reasons.of("approve"),))
    if chosen.rule.approval is not None:
        return replace(judged, answer="approve", because=(reasons.of("approval_required"),))
    return replace(judged, answer="rescue", because=(reasons.of("nothing_holds_back"),))


def _planned(situation: Situation, chosen: matching.Candidate) -> Decision:
    """What the rule would do, with no answer yet."""
    cluster, rule = situation.cluster, chosen.rule
    return Decision(
        answer="none",
        because=(),
        mode=strictest(cluster.installation_mode, cluster.mode, rule.mode),
        rule=chosen.name,
        policy=chosen.policy,
        revision=chosen.revision,
        steps=plan.of_rule(rule, code=situation.fault.code),
    )


def _taken(situation: Situation, judged: Decision) -> Decision | None:
    """The answer where the node is in other hands, or needs nothing."""
    node = situation.node
    if node.labels.get(EXCLUDE_LABEL) == "true":
        return replace(judged, because=(reasons.of("excluded", node=node.name, label=EXCLUDE_LABEL),))
    if judged.mode == "paused":
        why = situation.cluster.pause_reason
        return _hold(situation, judged, reasons.of("paused_because", why=why) if why else reasons.of("paused"))
    again = situation.now + guards.AGAIN
    if node.open_rescue is not None:
        why_not = reasons.of("rescue_open", rescue=str(node.open_rescue))
        return replace(judged, answer="hold", because=(why_not,), again_at=again)
    if node.left_to_people is not None:
        why_not = reasons.of("left_to_people", rescue=str(node.left_to_people))
        return replace(judged, answer="hold", because=(why_not,), again_at=again)
    if node.rebooted_since:
        return replace(judged, because=(reasons.of("rebooted_since", node=node.name),))
    if node.unshown_boot:
        return _hold(situation, judged, reasons.of("boot_not_shown", boot=node.unshown_boot))
    if node.isolated_by is not None and plan.digest(judged.steps) == node.isolated_plan:
        return replace(judged, because=(reasons.of("done_already", rescue=str(node.isolated_by)),))
    return None


def _stop(situation: Situation, judged: Decision) -> reasons.Reason | None:
    """Why one more reboot, or reset of a GPU, would help nobody."""
    mending = {step.name for step in judged.steps} & plan.MENDING
    if not mending:
        return None
    node, repeats, ladder = situation.node, situation.settings.repeats, situation.settings.ladder
    if node.recent_rescues >= repeats.limit:
        return reasons.of("reboots_repeat", rescues=node.recent_rescues, within=reasons.span(repeats.window))
    if "reboot" in mending and ladder.reboots is not None and node.reboots_for_code >= ladder.reboots:
        return reasons.of(
            "inspection",
            reboots=node.reboots_for_code,
            within=reasons.span(ladder.window),
            kind=situation.fault.kind,
            code=situation.fault.code,
        )
    return None


def _guards(
    situation: Situation, chosen: matching.Candidate, *, steps: tuple[plan.PlannedStep, ...]
) -> guards.Verdict | None:
    """What the guards say; None where the plan takes nothing away from anybody, or nothing was counted."""
    if situation.counts is None or not any(step.name in ISOLATING for step in steps):
        return None
    limits = guards.RuleLimits(name=chosen.name, budget=chosen.rule.budget, cooldown=chosen.rule.cooldown)
    return guards.isolation(situation.settings, situation.counts, now=situation.now, rule=limits)


def _hold(situation: Situation, judged: Decision, *held: reasons.Reason, again_at: datetime | None = None) -> Decision:
    """Held back, to be judged again; given up where the fault was not seen for longer than the time to live (32)."""
    seen, expiry = situation.fault.last_seen_at, situation.settings.expiry
    if seen is not None and situation.now - seen > expiry:
        expired = reasons.of("expired", seen=reasons.moment(seen), within=reasons.span(expiry))
        return replace(judged, answer="none", because=(*held, expired))
    return replace(judged, answer="hold", because=held, again_at=again_at or situation.now + guards.AGAIN)
