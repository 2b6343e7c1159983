"""Backtest rules: what would they have decided on the same facts? Nothing is written."""

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from kcover.decisions import decide as core, match
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import queries
from kcover_portal.rescue.decide.past_guards import Replay
from kcover_portal.rescue.models import Decision

Replays = tuple[Replay, Replay]  # of the rules in force, and of the other rules
Facts = TypeVar("Facts", core.FaultFacts, core.NodeFacts, core.ClusterFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """One incident, as the rules in force decide it and as the other rules would."""

    incident: Incident
    node: Node
    at: datetime
    before: core.Decision
    after: core.Decision

    @property
    def changed(self) -> bool:
        """True if the answer or the steps differ. Another rule with the same steps is not a change."""
        return (self.before.answer, self.before.steps) != (self.after.answer, self.after.steps)


def run(
    rules: tuple[match.Candidate, ...],
    incidents: Iterable[Incident],
    *,
    now: datetime,
    past: Replays | None = None,
) -> Iterator[Backtest]:
    """Decide each incident twice: by the rules in force and by ``rules``.

    The facts are those of this moment, guards included. With ``past`` they are those stored with the incident's first
    decision; the guards count what each set of rules would have done before, so give the oldest incident first. An
    incident that was never decided has only the present facts. Storms are skipped, because they belong to no node.
    """
    for incident in incidents:
        node = incident.node
        if node is None:
            continue
        before = queries.situation(node, incident, now=now)
        after = queries.situation(node, incident, now=now, rules=rules)
        first = Decision.objects.filter(incident=incident).order_by("pk").first() if past else None
        if first is None or past is None:
            yield Backtest(incident=incident, node=node, at=now, before=core.decide(before), after=core.decide(after))
            continue
        decided = [
            _decide_then(replay, _past_situation(situation, first.facts, incident), node, incident)
            for replay, situation in zip(past, (before, after), strict=True)
        ]
        yield Backtest(incident=incident, node=node, at=_moment(first.facts), before=decided[0], after=decided[1])


def _decide_then(replay: Replay, situation: core.Situation, node: Node, incident: Incident) -> core.Decision:
    """Decides with the guards' counts of that moment, and counts the decision for those that follow."""
    decision = core.decide(dataclasses.replace(situation, counts=replay.counts(node, incident, situation)))
    steps = [step.name for step in decision.steps]
    replay.add(incident, answer=decision.answer, rule=decision.rule, steps=steps, at=situation.now)
    return decision


def _moment(facts: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(facts["now"])


def _past_situation(situation: core.Situation, facts: Mapping[str, Any], incident: Incident) -> core.Situation:
    """The situation with the facts that a decision stored; occurrences are counted up to that moment."""
    then = _moment(facts)
    seen = queries.seen_within(incident, situation.rules, now=then)
    return dataclasses.replace(
        situation,
        now=then,
        fault=dataclasses.replace(_read(situation.fault, facts["fault"]), seen_within=seen),
        node=_read(situation.node, facts["node"]),
        cluster=_read(situation.cluster, facts["cluster"]),
        counts=None,
        external_queried=facts["external_queried"],
        matched=None,
    )


def _read(present: Facts, kept: Mapping[str, Any]) -> Facts:
    """Facts from their JSON."""
    hints = typing.get_type_hints(type(present))
    known = {name: _value(hints[name], value) for name, value in kept.items() if name in hints}
    return type(present)(**known)


def _value(hint: Any, value: Any) -> Any:
    """Restore what JSON cannot express: datetimes, tuples and integer keys."""
    wanted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, str) and datetime in wanted and str not in wanted:
        return datetime.fromisoformat(value)
    for option in wanted:
        origin, inner = typing.get_origin(option), typing.get_args(option)
        if origin is dict and isinstance(value, dict) and inner[0] is int:
            return {int(key): item for key, item in value.items()}
        if origin is tuple and isinstance(value, list):
            return tuple(value)
    return value
