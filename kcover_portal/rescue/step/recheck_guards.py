"""The guards, evaluated again by a rescue under way.

They are evaluated before each call that takes work away, and before an isolation that begins long after the guards
allowed it. A rescue that they hold back waits visibly. Guards that a named person overrode are recorded with their
figures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from kcover import actions, audit, reasons
from kcover.decisions import guards
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import capacity, counts

NO_FIGURES: Mapping[str, Any] = MappingProxyType({})
ISOLATION_VALID_FOR = timedelta(minutes=1)  # how long an isolation may take to begin after the guards allowed it


class HeldBack(reasons.ExplainedError):
    """A guard refuses the write that was about to be made. ``seconds``: until it is evaluated again."""

    def __init__(self, reason: reasons.Reason, *, seconds: float = 5.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


class ApprovalNeeded(HeldBack):
    """Approve mode was set while the rescue was under way, and nobody has been asked for approval yet."""


def needs_approval(rescue: Rescue, *, mode: str) -> bool:
    """Returns whether a person must approve before it takes work away, because approve mode was set meanwhile."""
    by_person = rescue.origin == Rescue.Origin.MANUAL and rescue.requester_kind != Rescue.Requester.TOKEN
    exempt = by_person and rescue.cluster.hand_approval == Cluster.HandApproval.NEVER
    return mode == "approve" and rescue.gate is None and not exempt


@dataclass(frozen=True, slots=True)
class GuardsPassed:
    """The guards let an act pass. ``overridden``: those that a named person overrode."""

    overridden: tuple[reasons.Reason, ...]
    act: audit.GuardPassed


def destructive(rescue: Rescue, step: Step, *, node: Node, mode: str, now: datetime) -> GuardsPassed:
    """Evaluates the guards before the step takes work away (invariant 37). Raises HeldBack.

    ``node``: the rescue's node with its cluster, read now.
    """
    settings = fleet.guards_of(node.cluster)
    kind, code = rescue.fault_kind, rescue.fault_code
    facts = counts.facts(node, settings=settings, now=now, kind=kind, code=code, destructive=True)
    if rescue.origin != Rescue.Origin.POLICY:
        facts = counts.with_open_storms(facts, node, settings=settings)
    asked_for = rescue.origin == Rescue.Origin.MANUAL
    if asked_for and node.gpus < 1 and facts.eligible < 1:
        return GuardsPassed((), _passed(rescue, step, mode, step.name))  # the cluster has no GPU nodes to count over
    verdict = guards.destructive(settings, facts, act=step.name, now=now, overrides=rescue.overrides)
    figures = guards.figures(settings, facts, act=step.name)
    return GuardsPassed(_let_pass(verdict, now=now), _passed(rescue, step, mode, step.name, figures))


def isolates_late(rescue: Rescue, *, step: str, now: datetime) -> bool:
    """Returns whether the step is about to isolate the node on an answer of the guards that is too old to act on.

    That happens to a rescue that waited for approval, or that something held back in the meantime.
    """
    if not actions.ACTIONS[step].isolates or rescue.marks:
        return False
    return rescue.isolating_at is None or now - rescue.isolating_at > ISOLATION_VALID_FOR


def isolation(rescue: Rescue, step: Step, *, now: datetime) -> GuardsPassed:
    """Evaluates again whether the node may be isolated (invariants 29, 36). Raises HeldBack.

    Part of the caller's transaction, and first in it: the cluster's counts are locked before the rescue's row.
    """
    node = fleet.node_of(rescue.node_id)
    if node.gpus < 1:
        return GuardsPassed((), _passed(rescue, step, "", guards.ISOLATION))  # limits are counted over GPU nodes
    if node.labels.get(guards.EXCLUDE_LABEL) == "true":
        raise HeldBack(excluded(node.name))
    settings = fleet.guards_of(node.cluster)
    rules = [candidate for candidate in policies.candidates() if candidate.name == rescue.rule][:1]
    locked = counts.lock(node.cluster, settings, rules)
    if locked is not None:
        node.cluster = locked
        settings = fleet.guards_of(node.cluster)
    since = now - ISOLATION_VALID_FOR
    facts = counts.facts(
        node,
        settings=settings,
        now=now,
        kind=rescue.fault_kind,
        code=rescue.fault_code,
        hardware=_is_hardware(rescue),
        rules=rules,
        recheck=capacity.Recheck(rescue.pk, since),
    )
    limits = [
        guards.RuleLimits(name=candidate.name, budget=candidate.rule.budget, cooldown=candidate.rule.cooldown)
        for candidate in rules
    ]
    rule = limits[0] if limits else None
    verdict = guards.isolation(settings, facts, now=now, rule=rule, overrides=rescue.overrides)
    figures = guards.figures(settings, facts, act=guards.ISOLATION, rule=rule)
    return GuardsPassed(_let_pass(verdict, now=now), _passed(rescue, step, "", guards.ISOLATION, figures))


def storm(rescue: Rescue, *, now: datetime) -> None:
    """Evaluates the storm guard before a rule's step hands work or the node to others. Raises HeldBack."""
    if rescue.origin != Rescue.Origin.POLICY:
        return
    node = fleet.node_of(rescue.node_id)
    settings = fleet.guards_of(node.cluster)
    facts = counts.facts(node, settings=settings, now=now, kind=rescue.fault_kind, code=rescue.fault_code)
    _let_pass(guards.during_storm(settings, facts, now=now, overrides=rescue.overrides), now=now)


def _is_hardware(rescue: Rescue) -> bool:
    """Returns whether the decision that opened the rescue found a hardware fault of the node."""
    counted = rescue.decision.facts.get("counts") if rescue.decision is not None else None
    return bool(counted and counted.get("hardware"))


def _passed(
    rescue: Rescue, step: Step, mode: str, act: str, figures: Mapping[str, Any] = NO_FIGURES
) -> audit.GuardPassed:
    return audit.GuardPassed(
        rescue=rescue.pk, node=rescue.node.name, act=act, mode=mode, figures=figures, step=step.index
    )


def _let_pass(verdict: guards.Verdict, *, now: datetime) -> tuple[reasons.Reason, ...]:
    if verdict.held and verdict.again_at is not None:
        raise HeldBack(reasons.both(*verdict.held), seconds=(verdict.again_at - now).total_seconds())
    return verdict.overridden


def excluded(node: str) -> reasons.Reason:
    """The reason that the node carries the label by which people exclude it."""
    return reasons.of("excluded", node=node, label=guards.EXCLUDE_LABEL)


def silent(mode: str, why: str) -> reasons.Reason:
    """The reason that nothing is written to the cluster in a mode of ``fleet.SILENT``.

    ``why``: the free text of a pause.
    """
    return reasons.with_why("paused", why) if mode == "paused" else reasons.of("shadow_no_writes")


def as_rows(passed: Iterable[reasons.Reason], *, step: str, now: datetime) -> list[dict[str, Any]]:
    """Overridden guards as a rescue stores them: when, by whom, why, and before which step ("": when the rescue was
    opened).
    """
    rows = []
    for reason in passed:
        params = dict(reason.params)
        why = params["why"]
        assert isinstance(why, reasons.Reason)  # the finding of the guard
        rows.append(
            {
                "at": now.isoformat(),
                "step": step,
                "guard": guards.guard_of(why.code),
                "by": params["user"],
                "why": why.to_json(),
            }
        )
    return rows


def new_rows(kept: Sequence[dict[str, Any]], rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that are not stored yet: a step records each overridden guard once."""
    known = {(row["step"], row["guard"]) for row in kept}
    return [row for row in rows if (row["step"], row["guard"]) not in known]


def keep_rows(rescue: Rescue, passed: Iterable[reasons.Reason], *, step: str, now: datetime) -> None:
    """Adds the guards that were overridden for ``step`` to the rescue's row, each once."""
    new = new_rows(rescue.passed_over, as_rows(passed, step=step, now=now))
    if new:
        rescue.passed_over = [*rescue.passed_over, *new]
        Rescue.objects.filter(pk=rescue.pk).update(passed_over=rescue.passed_over)
