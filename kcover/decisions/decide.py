"""Decide what to do about one fault on one node. All facts go in; a Decision with its reasons comes out.

``decide`` reads neither a clock nor a database, so a replay of the same facts gives the same decision.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from kcover import actions, reasons
from kcover.decisions import asks, guards, match
from kcover.faults import catalog
from kcover.plans import plan
from kcover.policy import modes

EXCLUDE_LABEL = guards.EXCLUDE_LABEL

# rescue: create the rescue and run it. approve: create it; a person must approve first. shadow: record what would have
# been done. hold: a rule matches but something holds it back; decide again later. none: do nothing.
ANSWERS = ("rescue", "approve", "shadow", "hold", "none")

_FOR_A_PERSON = ("reboots_repeat", "inspection")  # the codes of ``_repair_objection``


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node as the portal knows it. ``known``: the cluster has it. ``gpus``: its GPU capacity."""

    name: str
    known: bool
    gpus: int
    labels: dict[str, str] = field(default_factory=dict)
    open_rescue: int | None = None
    left_to_people: int | None = None  # the rescue that ended by leaving the node to people
    isolated_by: int | None = None  # the closed rescue whose marks the node still carries
    isolated_plan: str = ""  # the hash of that rescue's plan
    recent_rescues: int = 0  # automatic reboots, power cycles and resets within the window of the ``repeats`` guard
    rebooted_since: bool = False  # the agent reports another boot since the fault was last seen
    unshown_boot: str = ""  # the boot of the fault, if the cluster has not shown whether that boot has ended
    on_probation: bool = False  # it was returned lately, and has not worked without faults for long enough
    reboots_for_code: int = 0  # reboots and power cycles for this code within the window of the ``ladder`` guard


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFacts:
    """An open incident, reduced to what rules can refer to."""

    kind: str
    code: str
    cause: int | None = None
    fatal: bool | None = None  # the severity that the log line itself printed
    count: int = 1
    seen_within: dict[int, int] = field(default_factory=dict)  # occurrences by window in seconds (match.windows)
    drill: bool = False
    application: bool = False  # an application fault; of Xids and SXids the catalog decides (``match``)
    harmless: bool = False  # information, or a monitor that does not work; as above
    last_seen_at: datetime | None = None  # by the portal's clock; None: a held decision does not expire


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The cluster settings that bound every decision."""

    name: str
    installation_mode: str = "enforce"
    mode: str = "enforce"
    pause_reason: str = ""
    decision_mode: str = "policies"  # policies | external | both
    drills: str = "act"  # act | record
    isolate_before_approval: bool = True  # in approve mode, steps that only isolate the node wait for nobody
    on_drain_timeout: str = "hold"  # hold | proceed | force, for rules that do not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that one decision depends on.

    ``external_queried``: the external decider was asked, so that ``decision_mode`` ``external`` no longer stops the
    decision: ``rules`` holds the decider's answer, or the policies stand in for a silent decider. ``counts``: what the
    guards evaluate; None where they are not evaluated (see ``needs_counts``). ``matched``: the rule that applies,
    None if ``decide`` is to compute it.
    """

    now: datetime
    fault: FaultFacts
    node: NodeFacts
    cluster: ClusterFacts
    rules: tuple[match.Candidate, ...]
    settings: guards.Settings = field(default_factory=guards.Settings)
    counts: guards.Facts | None = None
    external_queried: bool = False
    matched: match.MatchResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer and its reasons, in the order of evaluation.

    ``candidate``: the rule that applies, and where it comes from. ``passed``: the guards that held nothing back.
    ``again_at``: when to decide again after ``hold``. ``storm``: the storm of which the fault is a part.
    """

    answer: str
    because: tuple[reasons.Reason, ...]
    mode: str
    candidate: match.Candidate | None = None
    steps: tuple[plan.PlannedStep, ...] = ()
    tried: tuple[match.TriedRule, ...] = ()
    passed: tuple[reasons.Reason, ...] = ()
    again_at: datetime | None = None
    storm: guards.Storm | None = None

    @property
    def rule(self) -> str | None:
        """The name of the rule that applies: ``heal#2``."""
        return self.candidate.name if self.candidate else None

    @property
    def policy(self) -> str | None:
        """The policy of that rule, or ``external:HOST`` for the answer of an external decider."""
        return self.candidate.policy if self.candidate else None

    @property
    def revision(self) -> int | None:
        """The revision of that policy; 0 for the answer of an external decider."""
        return self.candidate.revision if self.candidate else None

    @property
    def needs_person(self) -> bool:
        """Whether it holds for a reason that only a person can resolve."""
        return self.answer == "hold" and asked_of_person(self.because) is not None


def asked_of_person(because: Iterable[reasons.Reason]) -> reasons.Reason | None:
    """The reason, of those of a decision to hold, that only a person can resolve; None if there is none."""
    return next((reason for reason in because if reason.code in _FOR_A_PERSON), None)


def says_no_rule(because: Iterable[reasons.Reason]) -> bool:
    """Whether the reasons of a decision are that no rule matches the fault, or that there is none."""
    return {reason.code for reason in because} <= {"rule_mismatch", "no_policy"}


def without_match(because: Iterable[reasons.Reason]) -> tuple[reasons.Reason, ...]:
    """The reasons of a decision without the one that names the rule that matches."""
    return tuple(reason for reason in because if reason.code != "rule_matches")


def decide(situation: Situation) -> Decision:
    """Decide one fault. The decision gives its reasons also if nothing is to be done."""
    fault, cluster = situation.fault, situation.cluster
    installed = modes.strictest(cluster.installation_mode, cluster.mode)
    if refusal := _why_unmatched(situation):
        return Decision(answer="none", because=(refusal,), mode=installed)
    chosen, tried = situation.matched or match_rules(situation)
    if chosen is None:
        found = guards.storm(situation.settings, situation.counts)
        return Decision(answer="none", because=_no_rule(tried), mode=installed, tried=tried, storm=found)
    matched = reasons.of(
        "rule_matches", rule=chosen.name, priority=chosen.rule.priority, kind=fault.kind, code=fault.code
    )
    evaluated = _evaluate(situation, chosen)
    return replace(evaluated, because=(matched, *evaluated.because), tried=tried)


def needs_counts(situation: Situation, chosen: match.Candidate) -> bool:
    """Return whether the answer depends on ``counts``: nothing that precedes the guards decides it.

    Counting is expensive, and most decisions that are made again wait for a person, a pause or another rescue.
    """
    planned = _planned(situation, chosen)
    return _handled_elsewhere(situation, planned) is None and _repair_objection(situation, planned) is None


def helps_nobody(situation: Situation, steps: tuple[plan.PlannedStep, ...]) -> reasons.Reason | None:
    """The reason why another system's plan would not help, by the past rescues of the node alone; None if it may."""
    if situation.node.left_to_people is not None:
        return reasons.of("left_to_people", rescue=str(situation.node.left_to_people))
    return _repair_objection(situation, Decision(answer="none", because=(), mode="enforce", steps=steps))


def is_hardware(fault: FaultFacts) -> bool:
    """Return whether the fault is a hardware Xid or SXid of the node, which no program caused or wrote."""
    return not fault.drill and catalog.is_hardware(fault.kind, fault.code, cause=fault.cause, fatal=fault.fatal)


def match_rules(situation: Situation) -> match.MatchResult:
    """The rule that applies to the situation's fault."""
    fault = situation.fault
    return match.match(
        situation.rules,
        kind=fault.kind,
        code=fault.code,
        cause=fault.cause,
        labels=situation.node.labels,
        fatal=fault.fatal,
        application=fault.application,
        harmless=fault.harmless,
        seen_within=fault.seen_within,
    )


def _why_unmatched(situation: Situation) -> reasons.Reason | None:
    """The reason why no rule is tried at all."""
    fault, node, cluster = situation.fault, situation.node, situation.cluster
    if not node.known:
        return reasons.of("node_unknown", cluster=cluster.name, node=node.name)
    if node.gpus < 1:
        return reasons.of("node_without_gpus", node=node.name)
    if fault.drill and cluster.drills == "record":
        return reasons.of("drill_recorded")
    if cluster.decision_mode == "external" and not situation.external_queried:
        return reasons.of("left_to_external")
    return None


def _no_rule(tried: tuple[match.TriedRule, ...]) -> tuple[reasons.Reason, ...]:
    if not tried:
        return (reasons.of("no_policy"),)
    return tuple(reasons.of("rule_mismatch", rule=candidate.rule, why=candidate.because) for candidate in tried)


def _evaluate(situation: Situation, chosen: match.Candidate) -> Decision:
    """The answer for the rule that applies, and what holds it back; the caller adds the match itself."""
    decision = _planned(situation, chosen)
    elsewhere = _handled_elsewhere(situation, decision)
    if elsewhere is not None:
        return elsewhere
    if (objection := _repair_objection(situation, decision)) is not None:
        return _hold(situation, decision, objection)
    verdict = _guards(situation, chosen, steps=decision.steps)
    if verdict is not None:
        found = guards.storm(situation.settings, situation.counts)
        decision = replace(decision, passed=verdict.passed, storm=found)
        if verdict.held:
            return _hold(situation, decision, *verdict.held, again_at=verdict.again_at)
    if decision.mode == "shadow":
        return replace(decision, answer="shadow", because=(reasons.of("shadow"),))
    first = situation.cluster.isolate_before_approval
    answer, why = asks.answer(chosen.rule, decision.steps, mode=decision.mode, isolate_first=first)
    return replace(decision, answer=answer, because=(reasons.of(why),))


def _planned(situation: Situation, chosen: match.Candidate) -> Decision:
    """The plan of the rule, without an answer yet."""
    cluster, rule = situation.cluster, chosen.rule
    return Decision(
        answer="none",
        because=(),
        mode=modes.strictest(cluster.installation_mode, cluster.mode, rule.mode),
        candidate=chosen,
        steps=plan.of_rule(rule, code=situation.fault.code, on_drain_timeout=cluster.on_drain_timeout),
    )


def _handled_elsewhere(situation: Situation, decision: Decision) -> Decision | None:
    """The answer if somebody else is in charge of the node, or if nothing needs to be done."""
    node = situation.node
    if node.labels.get(EXCLUDE_LABEL) == "true":
        return replace(decision, because=(reasons.of("excluded", node=node.name, label=EXCLUDE_LABEL),))
    if decision.mode == "paused":
        why = situation.cluster.pause_reason
        return _hold(situation, decision, reasons.of("paused_because", why=why) if why else reasons.of("paused"))
    again = situation.now + guards.REDECIDE_AFTER
    if node.open_rescue is not None:
        why_not = reasons.of("rescue_open", rescue=str(node.open_rescue))
        return replace(decision, answer="hold", because=(why_not,), again_at=again)
    if node.left_to_people is not None:
        why_not = reasons.of("left_to_people", rescue=str(node.left_to_people))
        return replace(decision, answer="hold", because=(why_not,), again_at=again)
    if node.rebooted_since:
        return replace(decision, because=(reasons.of("rebooted_since", node=node.name),))
    if node.unshown_boot:
        return _hold(situation, decision, reasons.of("boot_not_shown", boot=node.unshown_boot))
    if node.isolated_by is not None and plan.digest(decision.steps) == node.isolated_plan:
        return replace(decision, because=(reasons.of("done_already", rescue=str(node.isolated_by)),))
    return None


def _repair_objection(situation: Situation, decision: Decision) -> reasons.Reason | None:
    """The reason why another reboot, or reset of a GPU, would not help; None if it may."""
    mending = {step.name for step in decision.steps if actions.ACTIONS[step.name].mends}
    if not mending:
        return None
    node, repeats, ladder = situation.node, situation.settings.repeats, situation.settings.ladder
    if node.recent_rescues >= repeats.limit:
        return reasons.of("reboots_repeat", rescues=node.recent_rescues, within=reasons.span(repeats.window))
    boots = any(actions.ACTIONS[name].ends_boot for name in mending)
    if boots and ladder.reboots is not None and node.reboots_for_code >= ladder.reboots:
        return reasons.of(
            "inspection",
            reboots=node.reboots_for_code,
            within=reasons.span(ladder.window),
            kind=situation.fault.kind,
            code=situation.fault.code,
        )
    return None


def _guards(
    situation: Situation, chosen: match.Candidate, *, steps: tuple[plan.PlannedStep, ...]
) -> guards.Verdict | None:
    """The guards' verdict; None if the plan isolates nothing, or nothing was counted."""
    if situation.counts is None or not any(actions.ACTIONS[step.name].isolates for step in steps):
        return None
    limits = guards.RuleLimits(name=chosen.name, budget=chosen.rule.budget, cooldown=chosen.rule.cooldown)
    return guards.isolation(situation.settings, situation.counts, now=situation.now, rule=limits)


def _hold(
    situation: Situation, decision: Decision, *held: reasons.Reason, again_at: datetime | None = None
) -> Decision:
    """Hold, to be decided again; give up if the fault was last seen longer ago than ``expiry`` (invariant 32)."""
    seen, expiry = situation.fault.last_seen_at, situation.settings.expiry
    if seen is not None and situation.now - seen > expiry:
        expired = reasons.of("expired", seen=reasons.moment(seen), within=reasons.span(expiry))
        return replace(decision, answer="none", because=(*held, expired))
    return replace(decision, answer="hold", because=held, again_at=again_at or situation.now + guards.REDECIDE_AFTER)
