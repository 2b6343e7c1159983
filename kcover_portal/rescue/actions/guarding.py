"""The guards, asked by a rescue under way: before each call that takes work away, and before a node is taken out long
after they let that pass. What they hold back waits, visibly; what a named person passed over is told with its figures.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from kcover import decision, guards, reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import counts

HOLDS = timedelta(minutes=1)  # what the guards said of an isolation: for as long it may take to begin


class HeldBack(Exception):
    """A guard refuses the write that was about to be made, and says which. ``seconds``: until it is asked again."""

    def __init__(self, text: str, *, seconds: float = 5.0) -> None:
        super().__init__(text)
        self.seconds = seconds


class Unasked(HeldBack):
    """Approve mode was set while the rescue was under way, and nobody has been asked about it yet."""


def unasked(rescue: Rescue, *, mode: str) -> bool:
    """Whether a person must be asked before it takes work away; what a person asked for is its own approval."""
    by_person = rescue.origin == Rescue.Origin.MANUAL and not rescue.requested_by.startswith("token:")
    return mode == "approve" and rescue.gate is None and not by_person


def destructive(rescue: Rescue, *, act: str, now: datetime) -> tuple[reasons.Reason, ...]:
    """Asks before ``act`` takes work away (invariant 37); returns what was passed over. Raises HeldBack."""
    node = Node.objects.select_related("cluster").get(pk=rescue.node_id)
    settings = fleet.guards_of(node.cluster)
    kind, _, code = rescue.code.partition(" ")
    facts = counts.facts(node, settings=settings, now=now, kind=kind, code=code, destructive=True)
    asked_for = rescue.origin == Rescue.Origin.MANUAL
    if asked_for and node.gpus < 1 and facts.eligible < 1:
        return ()  # limits are counted over GPU nodes, and the cluster has none
    return _let_pass(guards.destructive(settings, facts, act=act, now=now, overrides=rescue.overrides), now=now)


def isolates_late(rescue: Rescue, *, step: str, now: datetime) -> bool:
    """Whether the step is about to take the node out, and what the guards said of that is too old to act on.

    So it is with a rescue that waited for a person's yes, or that something held back meanwhile.
    """
    if step not in decision.ISOLATING or rescue.marks:
        return False
    return rescue.isolating_at is None or now - rescue.isolating_at > HOLDS


def isolation(rescue: Rescue, *, now: datetime) -> tuple[reasons.Reason, ...]:
    """Asks once more whether the node may be taken out (invariants 29, 36); returns what was passed over.

    Part of the caller's transaction, and first in it: the cluster's counts are locked before the rescue's row. Raises
    HeldBack.
    """
    node = Node.objects.select_related("cluster").get(pk=rescue.node_id)
    if node.gpus < 1:
        return ()  # limits are counted over GPU nodes
    if node.labels.get(guards.EXCLUDE_LABEL) == "true":
        raise HeldBack(f"the node carries {guards.EXCLUDE_LABEL}=true")
    settings = fleet.guards_of(node.cluster)
    rules = [one for one in policies.candidates() if one.name == rescue.rule][:1]
    if counts.lock(node.cluster, settings, rules):
        node.cluster.refresh_from_db()
        settings = fleet.guards_of(node.cluster)
    kind, _, code = rescue.code.partition(" ")
    since = now - HOLDS
    facts = counts.facts(
        node, settings=settings, now=now, kind=kind, code=code, rules=rules, again=counts.Again(rescue.pk, since)
    )
    limits = [guards.RuleLimits(name=one.name, budget=one.rule.budget, cooldown=one.rule.cooldown) for one in rules]
    rule = limits[0] if limits else None
    return _let_pass(guards.isolation(settings, facts, now=now, rule=rule, overrides=rescue.overrides), now=now)


def _let_pass(verdict: guards.Verdict, *, now: datetime) -> tuple[reasons.Reason, ...]:
    if verdict.held and verdict.again_at is not None:
        text = "; ".join(str(reason) for reason in verdict.held)
        raise HeldBack(text, seconds=(verdict.again_at - now).total_seconds())
    return verdict.overridden


def as_rows(passed: Iterable[reasons.Reason], *, step: str, now: datetime) -> list[dict[str, Any]]:
    """What was passed over, as a rescue keeps it: when, before which step ("": when it was opened), by whom and why."""
    rows = []
    for one in passed:
        said = dict(one.params)
        why = said["why"]
        rows.append(
            {
                "at": now.isoformat(),
                "step": step,
                "guard": said["guard"],
                "by": said["user"],
                "why": why.to_json() if isinstance(why, reasons.Reason) else str(why),
            }
        )
    return rows


def fresh(kept: Sequence[dict[str, Any]], rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the rows that are not kept yet: a step that passes a guard over says so once."""
    known = {(row["step"], row["guard"]) for row in kept}
    return [row for row in rows if (row["step"], row["guard"]) not in known]
