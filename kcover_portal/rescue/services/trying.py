"""Trying out: what other rules would have decided, by the same kernel on the same facts, and nothing is written."""

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from kcover import decision as kernel
from kcover.policy import matching
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Decision

Facts = TypeVar("Facts", kernel.FaultFacts, kernel.NodeFacts, kernel.ClusterFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One incident as the rules in force judge it and as the others would."""

    incident: Incident
    node: Node
    before: kernel.Decision
    after: kernel.Decision

    @property
    def changed(self) -> bool:
        """Whether something else would be done; another rule that does the same is no change."""
        return (self.before.answer, self.before.steps) != (self.after.answer, self.after.steps)


def try_out(
    rules: tuple[matching.Candidate, ...], incidents: Iterable[Incident], *, now: datetime, past: bool = False
) -> Iterator[Trial]:
    """Judges each incident twice, by the rules in force and by ``rules``.

    On the facts of this moment, guards included, or, with ``past``, on those that its first decision was made from, as
    they were kept then, where no guard is asked; an incident that was never judged has only those of this moment. One
    of no node (a storm) is passed over.
    """
    for incident in incidents:
        node = incident.node
        if node is None:
            continue
        before = queries.situation(node, incident, now=now)
        after = queries.situation(node, incident, now=now, rules=rules)
        first = Decision.objects.filter(incident=incident).order_by("pk").first() if past else None
        if first is not None:
            before, after = (_as_it_was(one, first.facts, incident) for one in (before, after))
        yield Trial(incident=incident, node=node, before=kernel.decide(before), after=kernel.decide(after))


def _as_it_was(situation: kernel.Situation, facts: Mapping[str, Any], incident: Incident) -> kernel.Situation:
    """The situation with the facts that a decision kept; sightings are counted up to its moment."""
    then = datetime.fromisoformat(facts["now"])
    seen = queries.seen_within(incident, situation.rules, now=then)
    return dataclasses.replace(
        situation,
        now=then,
        fault=dataclasses.replace(_read(situation.fault, facts["fault"]), seen_within=seen),
        node=_read(situation.node, facts["node"]),
        cluster=_read(situation.cluster, facts["cluster"]),
        counts=None,  # what surrounded the node then: the question is what the rules say, not what bounded them
    )


def _read(present: Facts, kept: Mapping[str, Any]) -> Facts:
    """Facts from the JSON that was made of them; what an older version did not keep has its default."""
    hints = typing.get_type_hints(type(present))
    known = {name: _value(hints[name], value) for name, value in kept.items() if name in hints}
    return type(present)(**known)


def _value(hint: Any, value: Any) -> Any:
    """JSON has no moments, no tuples and no numbers as keys."""
    wanted = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, str) and datetime in wanted and str not in wanted:
        return datetime.fromisoformat(value)
    for one in wanted:
        origin, inner = typing.get_origin(one), typing.get_args(one)
        if origin is dict and isinstance(value, dict) and inner[0] is int:
            return {int(key): held for key, held in value.items()}
        if origin is tuple and isinstance(value, list):
            return tuple(value)
    return value
