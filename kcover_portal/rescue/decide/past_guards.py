"""What the guards would have counted in a backtest, if the tried rules had been in force all the time.

Incidents are decided in the order in which they were opened. A node that the rules take out counts as isolated from
that moment until its incident closed. The fleet, its labels and its guards are those of today.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kcover import actions
from kcover.decisions import decide as core, guards, match
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.queries import capacity, symptoms

OPENS = ("rescue", "approve")  # answers that take a slot: also while a person is asked


@dataclass(frozen=True, slots=True)
class Isolation:
    """A rescue that the rules would have opened. ``until`` None: its incident is open."""

    node: int
    rule: str
    isolates: bool
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The eligible nodes of a cluster: pool and labels by key, and its maintenance windows in the past, too."""

    nodes: dict[int, tuple[str, dict[str, str]]]
    windows: tuple[Maintenance, ...]

    def having(self, node: Node, labels: dict[str, str]) -> "_Fleet":
        """The fleet with this node as it was when its fault was decided."""
        return _Fleet({**self.nodes, node.pk: (node.pool, labels)}, self.windows)


@dataclass(slots=True)
class Replay:
    """The isolations that one set of rules has made so far, by cluster."""

    _isolations: dict[int, list[Isolation]] = field(default_factory=dict)
    _fleets: dict[int, _Fleet] = field(default_factory=dict)

    def add(self, incident: Incident, *, answer: str, rule: str | None, steps: Iterable[str], at: datetime) -> None:
        """Counts the decision if it opens a rescue."""
        if answer in OPENS and incident.node_id is not None:
            isolates = any(actions.ACTIONS[name].isolates for name in steps if name in actions.ACTIONS)
            made = Isolation(incident.node_id, rule or "", isolates, at, incident.closed_at)
            self._isolations.setdefault(incident.cluster_id, []).append(made)

    def counts(self, node: Node, incident: Incident, situation: core.Situation) -> guards.Facts | None:
        """Returns what the guards evaluate for this decision; None if it does not depend on them."""
        chosen = core.match_rules(situation).candidate
        if chosen is None or not core.needs_counts(situation, chosen):
            return None
        return self._facts(node, incident, situation, chosen)

    def _facts(
        self, node: Node, incident: Incident, situation: core.Situation, chosen: match.Candidate
    ) -> guards.Facts:
        now, settings = situation.now, situation.settings
        known = self._fleet(node.cluster).having(node, situation.node.labels)
        made = self._isolations.get(node.cluster_id, [])
        held = [one for one in made if one.since <= now and (one.until is None or one.until > now)]
        taken = {one.node for one in held}
        lately = {one.node for one in made if one.isolates and one.since > now - settings.breaker.window}
        return guards.Facts(
            cluster=node.cluster.name,
            node=node.name,
            eligible=len(known.nodes),
            isolated_lately=len(lately - {node.pk}),
            slots=_slots(node, situation.node.labels, settings.budget.by, known, taken),
            scoped=_scoped(node, situation.node.labels, settings.budget, known, taken),
            pool=_pool(node, known, taken),
            labels=situation.node.labels,
            serving=node.pk not in taken,
            holds_slot=node.pk in taken,
            hardware=core.is_hardware(situation.fault),
            symptoms=_symptoms(incident, now, settings.storm.window) if settings.storm.enabled else (),
            last_rescue_ended_at=_ended(made, node, now) if settings.cooldown else None,
            maintenance=tuple(
                capacity.window_of(row, node) for row in known.windows if row.starts_at <= now < row.ends_at
            ),
            rules={chosen.name: _rule(chosen, node, known, held, _ended(made, node, now, chosen.name))},
        )

    def _fleet(self, cluster: Cluster) -> _Fleet:
        if cluster.pk not in self._fleets:
            rows = capacity.eligible(cluster).values_list("pk", "pool", "labels")
            windows = tuple(fleet.maintenance(cluster, now=datetime.min.replace(tzinfo=cluster.created_at.tzinfo)))
            self._fleets[cluster.pk] = _Fleet({pk: (pool, labels) for pk, pool, labels in rows}, windows)
        return self._fleets[cluster.pk]


def _slots(node: Node, labels: dict[str, str], by: guards.BudgetScope, known: _Fleet, taken: set[int]) -> guards.Slots:
    label = labels.get(by.label_key, "")
    if by.kind == "pool":
        scope = {pk for pk, (pool, _) in known.nodes.items() if pool == node.pool}
    elif by.kind == "label":
        scope = {pk for pk, (_, own) in known.nodes.items() if own.get(by.label_key, "") == label}
    else:
        scope = set(known.nodes)
    name = {"cluster": node.cluster.name, "pool": node.pool, "label": f"{by.label_key}={label}"}[by.kind]
    return guards.Slots(by=by.kind, name=name, eligible=len(scope), taken=len(scope & taken))


def _scoped(
    node: Node, labels: dict[str, str], budget: guards.Budget, known: _Fleet, taken: set[int]
) -> dict[str, guards.Slots]:
    setting, found = node.cluster.topology, dict[str, guards.Slots]()
    for place, one in enumerate(budget.scopes):
        inside = {
            pk for pk, (pool, own) in known.nodes.items() if one.scope.covers(pool=pool, labels=own, setting=setting)
        }
        if node.pk in inside:
            kind, name = one.scope.shown_as_group(pool=node.pool, labels=labels, setting=setting)
            found[str(place)] = guards.Slots(by=kind, name=name, eligible=len(inside), taken=len(inside & taken))
    return found


def _pool(node: Node, known: _Fleet, taken: set[int]) -> guards.Pool:
    pool = {pk for pk, (name, _) in known.nodes.items() if name == node.pool}
    return guards.Pool(name=node.pool, eligible=len(pool), healthy=len(pool - taken))


def _rule(
    chosen: match.Candidate, node: Node, known: _Fleet, held: list[Isolation], ended: datetime | None
) -> guards.RuleFacts:
    selected = {pk for pk, (_, labels) in known.nodes.items() if match.label_refusal(chosen.rule, labels) is None}
    taken = {one.node for one in held if one.rule == chosen.name}
    slots = guards.Slots(by="rule", name=chosen.name, eligible=len(selected), taken=len(taken))
    return guards.RuleFacts(slots=slots, last_ended_at=ended)


def _ended(made: list[Isolation], node: Node, now: datetime, rule: str = "") -> datetime | None:
    """The end of the node's last rescue; with ``rule``, of the last one by that rule."""
    ends = [one.until for one in made if one.node == node.pk and (not rule or one.rule == rule) and one.until]
    return max((end for end in ends if end <= now), default=None)


def _symptoms(incident: Incident, now: datetime, window: timedelta) -> tuple[guards.Symptom, ...]:
    """The code that other nodes showed too. The jobs and switches of that time are not known any more."""
    kind, code = symptoms.name_of(incident)
    rows = Incident.objects.filter(
        symptoms.by_name(kind, code, symptoms.alias_of(kind, code)),
        cluster=incident.cluster_id,
        node__isnull=False,
        opened_at__gt=now - window,
        opened_at__lte=now,
    )
    nodes = rows.order_by().values("node").distinct().count()
    return (guards.Symptom(trait="code", kind=kind, value=code, nodes=max(nodes, 1)),)
