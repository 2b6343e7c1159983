"""Evaluate the guards: what holds an act back, and which guards it passed.

Guards hold back isolation and destructive acts only. Recovery, uncordon, release and audit never evaluate them, so a
tripped breaker never blocks those (invariant 31).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from kcover import reasons
from kcover.decisions.guards import chance, room
from kcover.decisions.guards.facts import EXCLUDE_LABEL, TRAITS, Facts, Slots, Symptom, pool_name, scope_name
from kcover.decisions.guards.settings import Settings
from kcover.values import limits

# The guards that a named user may override.
GUARDS = ("maintenance", "storm", "rate", "breaker", "budget", "floor", "cooldown")

# A storm without a budget isolates no more of the eligible nodes than this, and no more than the breaker's limit.
STORM_SHARE = limits.Limit(percent=25)

NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})

REDECIDE_AFTER = timedelta(seconds=15)  # a held decision is made again on the facts of that time,
MAX_REDECIDE_AFTER = timedelta(minutes=5)  # and at the latest after this, because people shorten windows too


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLimits:
    """The limits of one rule, in addition to the cluster's. ``name``: ``Candidate.name``."""

    name: str
    budget: limits.Limit | None = None
    cooldown: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """One symptom on so many nodes that a shared cause is likely. ``reached``: the threshold in nodes."""

    symptom: Symptom
    reached: int
    eligible: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of the guards: reasons that hold an act back (none: it may proceed), passed and overridden guards."""

    held: tuple[reasons.Reason, ...]
    passed: tuple[reasons.Reason, ...]
    overridden: tuple[reasons.Reason, ...] = ()
    again_at: datetime | None = None  # when to evaluate again; None if nothing holds it back


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    reason: reasons.Reason
    holds: bool = False
    guard: str = ""  # the name that an override uses
    until: datetime | None = None  # when the guard releases by itself, if known


def isolation(
    settings: Settings,
    facts: Facts,
    *,
    now: datetime,
    rule: RuleLimits | None = None,
    overrides: Mapping[str, str] = NO_OVERRIDES,
) -> Verdict:
    """Evaluate the guards for the isolation of one more node.

    ``overrides``: guard (``GUARDS``) to the user who overrode it.

    Raises KeyError if ``facts.rules`` lacks the rule.
    """
    return _verdict(_isolation(settings, facts, rule=rule, now=now), facts, overrides=overrides, now=now)


def destructive(
    settings: Settings, facts: Facts, *, act: str, now: datetime, overrides: Mapping[str, str] = NO_OVERRIDES
) -> Verdict:
    """Evaluate the guards for ``act`` (drain, reset, reboot or anything else that takes work away).

    Evaluated right before each such call (invariant 37).
    """
    return _verdict(_destructive(settings, facts, act=act, now=now), facts, overrides=overrides, now=now)


def storm(settings: Settings, facts: Facts | None) -> Storm | None:
    """The widest storm that the fault at hand belongs to. None if there is none, or nothing was counted."""
    if facts is None or not settings.storm.enabled or facts.eligible < 1 or not facts.symptoms:
        return None
    widest = min(facts.symptoms, key=lambda symptom: (-symptom.nodes, TRAITS.index(symptom.trait), symptom.text))
    reached = settings.storm.reached_from(eligible=facts.eligible)
    if widest.nodes < reached:
        return None
    return Storm(symptom=widest, reached=reached, eligible=facts.eligible)


def during_storm(
    settings: Settings, facts: Facts, *, now: datetime, overrides: Mapping[str, str] = NO_OVERRIDES
) -> Verdict:
    """Evaluate the storm guard alone, for a step that hands work or the node to others."""
    findings = [_storm(settings, facts)] if settings.storm.enabled else []
    return _verdict(findings, facts, overrides=overrides, now=now)


def too_many_plans(settings: Settings, *, active: int) -> reasons.Reason | None:
    """The reason why a decision system's plan is refused, if it is. ``active``: their open rescues in the cluster."""
    limit = settings.plans.limit
    return reasons.of("plan_limit", limit=limit) if active >= limit else None


def _verdict(findings: Iterable[_Finding], facts: Facts, *, overrides: Mapping[str, str], now: datetime) -> Verdict:
    if facts.eligible < 1:  # nothing to count over, so nothing is done; overrides do not apply
        nobody = reasons.of("none_eligible", cluster=facts.cluster)
        return Verdict(held=(nobody,), passed=(), again_at=now + REDECIDE_AFTER)
    known = tuple(findings)
    holding = [finding for finding in known if finding.holds and finding.guard not in overrides]
    return Verdict(
        held=tuple(finding.reason for finding in holding),
        passed=tuple(finding.reason for finding in known if not finding.holds),
        overridden=tuple(
            _overridden(finding, user=overrides[finding.guard])
            for finding in known
            if finding.holds and finding.guard in overrides
        ),
        again_at=_reevaluation_time(holding, now=now) if holding else None,
    )


def _overridden(finding: _Finding, *, user: str) -> reasons.Reason:
    guard = reasons.of(f"guard_{finding.guard}")
    return reasons.of("overridden", guard=guard, user=user, why=finding.reason)


def _reevaluation_time(holding: Iterable[_Finding], *, now: datetime) -> datetime:
    """The time when the last of the guards releases, within the bounds."""
    latest = max(finding.until or now for finding in holding)
    return min(max(latest, now + REDECIDE_AFTER), now + MAX_REDECIDE_AFTER)


def _isolation(settings: Settings, facts: Facts, *, rule: RuleLimits | None, now: datetime) -> Iterable[_Finding]:
    yield _maintenance(facts, now=now)
    if settings.storm.enabled:
        yield _storm_cordon(settings, facts) if facts.hardware else _storm(settings, facts)
    if settings.breaker.enabled:
        yield _breaker(settings, facts)
    if settings.budget.limit is not None:
        yield _budget(facts.slots, settings.budget.limit, facts)
    for place, slots in facts.scoped.items():
        yield _budget(slots, settings.budget.scopes[int(place)].limit, facts)
    if rule is not None and rule.budget is not None:
        yield _budget(facts.rules[rule.name].slots, rule.budget, facts)
    if settings.floor.percent is not None:
        yield _floor(settings.floor.percent, facts)
    if settings.cooldown:
        yield _cooldown(settings.cooldown, facts.last_rescue_ended_at, now=now)
    if rule is not None and rule.cooldown is not None:
        yield _cooldown(rule.cooldown, facts.rules[rule.name].last_ended_at, rule=rule.name, now=now)


def _destructive(settings: Settings, facts: Facts, *, act: str, now: datetime) -> Iterable[_Finding]:
    yield _exclusion(facts)
    yield _maintenance(facts, now=now)
    if settings.storm.enabled:
        yield _storm(settings, facts)
    if settings.rate.enabled:
        yield _rate(facts, act=act)
    if settings.floor.percent is not None:
        yield _floor(settings.floor.percent, facts)


# --- one function per guard


def _exclusion(facts: Facts) -> _Finding:
    """An exclusion cannot be overridden, so the finding has no guard name."""
    excluded = facts.labels.get(EXCLUDE_LABEL) == "true"
    code = "excluded" if excluded else "not_excluded"
    return _Finding(holds=excluded, reason=reasons.of(code, node=facts.node, label=EXCLUDE_LABEL))


def _maintenance(facts: Facts, *, now: datetime) -> _Finding:
    """The active window that ends last."""
    holding = [
        window for window in facts.maintenance if window.start <= now < window.end and facts.is_covered_by(window)
    ]
    if not holding:
        return _Finding(reason=reasons.of("no_maintenance"))
    last = max(holding, key=lambda window: window.end)
    scope, until = scope_name(last.scope, last.name), reasons.moment(last.end)
    reason = reasons.with_why("maintenance", last.reason, scope=scope, until=until)
    return _Finding(guard="maintenance", holds=True, until=last.end, reason=reason)


def _storm(settings: Settings, facts: Facts) -> _Finding:
    found, within = storm(settings, facts), reasons.span(settings.storm.window)
    if found is None:
        most = max((shared.nodes for shared in facts.symptoms), default=0)
        return _Finding(
            reason=reasons.of(
                "no_storm", nodes=most, limit=settings.storm.reached_from(eligible=facts.eligible), within=within
            )
        )
    symptom = found.symptom
    reason = reasons.of(
        f"storm_{symptom.trait}", value=symptom.text, nodes=symptom.nodes, limit=found.reached, within=within
    )
    return _Finding(guard="storm", holds=True, reason=reason)


def _storm_cordon(settings: Settings, facts: Facts) -> _Finding:
    """A storm lets a node with a hardware fault of its own be isolated, within the budget (invariant 33)."""
    held = _storm(settings, facts)
    if not held.holds:
        return held
    if settings.budget.limit is None:
        most = min(STORM_SHARE.of(facts.eligible), settings.breaker.limit.of(facts.eligible))
        if not facts.holds_slot and facts.slots.taken >= most:
            taken = reasons.of("storm_budget", taken=facts.slots.taken, limit=most, eligible=facts.eligible)
            return _Finding(guard="storm", holds=True, reason=taken)
    widest = max(shared.nodes for shared in facts.symptoms)
    within = reasons.span(settings.storm.window)
    reached = settings.storm.reached_from(eligible=facts.eligible)
    return _Finding(reason=reasons.of("storm_cordon", nodes=widest, limit=reached, within=within))


def _rate(facts: Facts, *, act: str) -> _Finding:
    """Reaching the limit trips the guard. The reason names the shortest window that trips."""
    faulty = facts.faulty
    counts = (faulty.ten_minutes, faulty.hour, faulty.six_hours)
    for window, count in zip(chance.WINDOWS, counts, strict=True):
        limit = chance.limit(facts.eligible, window=window, past=facts.past)
        if count >= limit:
            reason = reasons.of(
                "rate",
                act=reasons.of(f"act_{act}"),
                nodes=count,
                eligible=facts.eligible,
                within=reasons.span(window),
                limit=limit,
            )
            return _Finding(guard="rate", holds=True, reason=reason)
    ten_minutes, hour, six_hours = counts
    limits = reasons.of(
        "rate_of_chance", ten_minutes=ten_minutes, hour=hour, six_hours=six_hours, eligible=facts.eligible
    )
    return _Finding(reason=limits)


def _breaker(settings: Settings, facts: Facts) -> _Finding:
    limit = settings.breaker.limit.of(facts.eligible)
    holds = not facts.holds_slot and room.of_breaker(settings.breaker, facts) < 1
    reason = reasons.of(
        "breaker" if holds else "breaker_closed",
        isolated=facts.isolated_lately,
        limit=limit,
        eligible=facts.eligible,
        within=reasons.span(settings.breaker.window),
    )
    return _Finding(guard="breaker", holds=holds, reason=reason)


def _budget(slots: Slots, limit: limits.Limit, facts: Facts) -> _Finding:
    """A node that already holds a slot does not need another."""
    most = limit.of(slots.eligible)
    holds = not facts.holds_slot and room.of_budget(limit, slots) < 1
    reason = reasons.of(
        "budget" if holds else "budget_left",
        scope=scope_name(slots.by, slots.name),
        taken=slots.taken,
        limit=most,
        eligible=slots.eligible,
    )
    return _Finding(guard="budget", holds=holds, reason=reason)


def _floor(percent: int, facts: Facts) -> _Finding:
    """Isolating a node that takes no work does not reduce the pool."""
    pool, name = facts.pool, pool_name(facts.pool.name)
    floor = limits.Limit(percent=percent).of(pool.eligible)
    holds = facts.serving and room.of_floor(percent, pool) < 1
    reason = reasons.of(
        "floor" if holds else "above_floor", pool=name, healthy=pool.healthy, floor=floor, eligible=pool.eligible
    )
    return _Finding(guard="floor", holds=holds, reason=reason)


def _cooldown(cooldown: timedelta, ended: datetime | None, *, now: datetime, rule: str | None = None) -> _Finding:
    if ended is None or now >= ended + cooldown:
        return _Finding(reason=reasons.of("cooled_down", within=reasons.span(cooldown)))
    until = ended + cooldown
    named = {"ended": reasons.moment(ended), "until": reasons.moment(until)}
    reason = reasons.of("cooldown", **named) if rule is None else reasons.of("rule_cooldown", **named, rule=rule)
    return _Finding(guard="cooldown", holds=True, until=until, reason=reason)
