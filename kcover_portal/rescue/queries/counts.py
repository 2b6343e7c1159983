"""Count what the guards evaluate (``kcover.decisions.guards``), as far as a cluster's settings require it.

A caller that acts on the counts holds ``lock`` in the same transaction. Otherwise two nodes that are decided at once
would both see the last free slot (invariant 29).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from django.db.models import Max, Q, QuerySet

from kcover.decisions import guards, match
from kcover.plans import lifecycle
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.fleet.services import node_scopes
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import capacity, guard_numbers, symptoms
from kcover_portal.rescue.queries.numbers import as_keys

NO_SLOTS = guards.Slots(by="rule", name="", eligible=0, taken=0)


def lock(cluster: Cluster, settings: guards.Settings, rules: Iterable[match.Candidate]) -> Cluster | None:
    """Locks the cluster's counts until the end of the transaction, if a limited resource is counted.

    Returns the cluster's row as it is under the lock, because its settings may have changed; None without a lock.
    """
    scarce = any((settings.storm.enabled, settings.breaker.enabled, settings.budget.is_set, settings.floor.percent))
    if not scarce and all(candidate.rule.budget is None for candidate in rules):
        return None
    # no_key: rows that refer to the cluster may be written meanwhile.
    return Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)


def facts(
    node: Node,
    *,
    settings: guards.Settings,
    now: datetime,
    kind: str = "",
    code: str = "",
    hardware: bool = False,
    rules: Iterable[match.Candidate] = (),
    destructive: bool = False,
    recheck: capacity.Recheck | None = None,
) -> guards.Facts:
    """The node and its surroundings now. ``kind``, ``code``: the fault at hand, "" if an operator requests an act.

    ``hardware``: see ``decide.is_hardware``. ``destructive``: for the guards before a call that takes work away; else
    for those before an isolation. ``recheck``: the rescue that passed the guards before and begins only now.
    """
    codes = [(kind, code)] if kind else []
    counted = Counts(node.cluster, settings=settings, now=now, nodes=[node], codes=codes, recheck=recheck)
    return counted.of(node, kind=kind, code=code, hardware=hardware, rules=rules, destructive=destructive)


def with_open_storms(found: guards.Facts, node: Node, *, settings: guards.Settings) -> guards.Facts:
    """The facts before somebody's request takes work away: the open storms of the node count, whatever its fault is."""
    if not settings.storm.enabled:
        return found
    return replace(found, symptoms=(*found.symptoms, *symptoms.open_storms_of(node)))


@dataclass(frozen=True, slots=True)
class _Counted:
    """A rescue that is about to be opened. ``healthy``: its node counted as healthy before."""

    node: Node
    rule: str
    isolates: bool
    healthy: bool


class Counts:
    """The counts that the guards evaluate about nodes of one cluster. Counts that several nodes share are taken once.

    ``nodes``: those that are asked about, and ``codes`` the kinds and codes of their faults. ``add`` counts a rescue
    that the caller is about to open, so that one transaction can decide several nodes one after the other.
    ``without_storm``: the key of a storm that is left out, as if it was closed.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        settings: guards.Settings,
        now: datetime,
        nodes: Collection[Node],
        codes: Iterable[symptoms.Code] = (),
        recheck: capacity.Recheck | None = None,
        without_storm: int | None = None,
    ) -> None:
        self._cluster, self._settings, self._now = cluster, settings, now
        self._nodes, self._recheck, self._without_storm = nodes, recheck, without_storm
        self._added: list[_Counted] = []
        told = set(codes) if settings.storm.enabled else set()
        names = symptoms.names_of(nodes, told)
        codes = sorted({*told, *names.values()})
        since = now - settings.storm.window
        known = guard_numbers.read(cluster, settings=settings, now=now, since=since, codes=codes, recheck=recheck)
        self._eligible: int = known["eligible"]
        self._has_windows = bool(known["windows"])
        self._taken = as_keys(known["taken"])
        self._isolating = as_keys(known.get("isolating"))
        self._symptoms: symptoms.Symptoms | None = None
        if codes:
            self._symptoms = symptoms.Symptoms(
                cluster, since=since, nodes=nodes, codes=codes, known=known, names=names, without_storm=without_storm
            )
        self._used: dict[tuple[guards.BudgetScope, str | None], tuple[int, set[int]]] = {}
        self._in_scope: dict[int, tuple[int, set[int]]] = {}
        self._pools: dict[str, tuple[int, int]] = {}
        self._rules: dict[str, tuple[int, set[int]]] = {}

    def of(
        self,
        node: Node,
        *,
        kind: str = "",
        code: str = "",
        hardware: bool = False,
        rules: Iterable[match.Candidate] = (),
        destructive: bool = False,
        code_only: bool = False,
    ) -> guards.Facts:
        """The node and its surroundings; see ``facts``. ``code_only``: see ``symptoms.Symptoms.of``."""
        settings, holds = self._settings, node.pk in self._taken
        shared: tuple[guards.Symptom, ...] = ()
        if self._symptoms is not None and kind:
            shared = self._symptoms.of(node, kind, code, code_only=code_only)
        return guards.Facts(
            cluster=self._cluster.name,
            node=node.name,
            eligible=self._eligible,
            isolated_lately=len(self._isolating - {node.pk}),
            slots=self._slots(node, settings.budget.by)
            if settings.budget.limit is not None
            else self._storm_slots(shared),
            scoped=self._scoped(node),
            pool=self._pool(node)
            if settings.floor.percent is not None
            else guards.Pool(name=node.pool, eligible=0, healthy=0),
            labels=node.labels,
            serving=node.ready and not node.unschedulable and not holds,  # as the pool's healthy ones are counted
            holds_slot=holds,
            hardware=hardware,
            symptoms=shared,
            faulty=self._faulty if destructive and settings.rate.enabled else guards.FaultyNodes(),
            past=self._past if destructive and settings.rate.enabled else guards.FaultHistory(),
            last_rescue_ended_at=self._ended.get((node.pk, "")) if settings.cooldown else None,
            maintenance=tuple(capacity.window_of(row, node) for row in self._windows) if self._has_windows else (),
            rules={it.name: self._rule(it, node) for it in rules if _is_bounded(it)},
        )

    def add(self, node: Node, *, rule: str, isolates: bool) -> None:
        """Counts a rescue of the node that the caller is about to open."""
        eligible = node.in_cluster and node.gpus > 0 and node.labels.get(guards.EXCLUDE_LABEL) != "true"
        healthy = eligible and node.ready and not node.unschedulable and node.pk not in self._taken
        self._added.append(_Counted(node, rule, isolates, healthy))
        self._taken.add(node.pk)
        if isolates and self._settings.breaker.enabled:
            self._isolating.add(node.pk)

    def _slots(self, node: Node, by: guards.BudgetScope) -> guards.Slots:
        value = _group(node, by)
        if (by, value) not in self._used:
            self._used[by, value] = self._count(self._group_rows(by, value))
        eligible, used = self._used[by, value]
        more = {it.node.pk for it in self._added if _group(it.node, by) == value}
        names = {"cluster": self._cluster.name, "pool": node.pool, "label": f"{by.label_key}={value or ''}"}
        return guards.Slots(by=by.kind, name=names[by.kind], eligible=eligible, taken=len(used | more))

    def _storm_slots(self, shared: Iterable[guards.Symptom]) -> guards.Slots:
        """The slots of the cluster, which a storm takes where no budget is set. None are taken without a storm."""
        widest = max((symptom.nodes for symptom in shared), default=0)
        is_storm = widest >= self._settings.storm.reached_from(eligible=self._eligible)
        taken = self._isolated_in_storm | {it.node.pk for it in self._added if it.isolates} if is_storm else ()
        return guards.Slots(by="cluster", name=self._cluster.name, eligible=self._eligible, taken=len(taken))

    @cached_property
    def _isolated_in_storm(self) -> set[int]:
        begun = symptoms.begin_of_storms(self._cluster, without=self._without_storm) or self._now
        since = begun - self._settings.storm.window
        rows = capacity.isolated_by_rules(self._cluster, since=since, recheck=self._recheck)
        return set(rows.values_list("node", flat=True))

    def _scoped(self, node: Node) -> dict[str, guards.Slots]:
        """The slots of each scope with a budget of its own that the node is in. One look at each scope."""
        found: dict[str, guards.Slots] = {}
        for place, budget in enumerate(self._settings.budget.scopes):
            if not node_scopes.covers(budget.scope, node, self._cluster):
                continue
            if place not in self._in_scope:
                self._in_scope[place] = self._count(node_scopes.nodes(self._cluster, budget.scope))
            eligible, used = self._in_scope[place]
            more = {it.node.pk for it in self._added if node_scopes.covers(budget.scope, it.node, self._cluster)}
            kind, name = budget.scope.shown_as_group(pool=node.pool, labels=node.labels, setting=self._cluster.topology)
            found[str(place)] = guards.Slots(by=kind, name=name, eligible=eligible, taken=len(used | more))
        return found

    def _group_rows(self, by: guards.BudgetScope, value: str | None) -> QuerySet[Node]:
        rows = Node.objects.filter(cluster=self._cluster, in_cluster=True)
        if by.kind == "pool":
            return rows.filter(pool=value)
        if by.kind == "label":
            key = by.label_key
            return rows.filter(**{f"labels__{key}": value}) if value is not None else rows.exclude(labels__has_key=key)
        return rows

    def _count(self, rows: QuerySet[Node]) -> tuple[int, set[int]]:
        """The number of eligible nodes among the rows, and the nodes that use slots.

        A node that a rule or a decision system isolated keeps its slot when its GPUs disappear or it is excluded later,
        because it is as stuck as before (invariant 36). What people do to such nodes is not counted.
        """
        counted = rows.filter(pk__in=capacity.eligible(self._cluster).values("pk"))
        out = capacity.taken(self._cluster, recheck=self._recheck)
        stuck = Q(pk__in=out.exclude(origin=Rescue.Origin.MANUAL).values("node"))
        used = rows.filter(stuck | Q(pk__in=counted.filter(pk__in=out.values("node")).values("pk")))
        return counted.count(), set(used.values_list("pk", flat=True))

    def _pool(self, node: Node) -> guards.Pool:
        if node.pool not in self._pools:
            rows = capacity.eligible(self._cluster).filter(pool=node.pool)
            out = capacity.taken(self._cluster, recheck=self._recheck).values("node")
            serving = rows.filter(ready=True, unschedulable=False).exclude(pk__in=out)
            self._pools[node.pool] = rows.count(), serving.count()
        number, healthy = self._pools[node.pool]
        fewer = sum(it.healthy for it in self._added if it.node.pool == node.pool)
        return guards.Pool(name=node.pool, eligible=number, healthy=healthy - fewer)

    def _rule(self, candidate: match.Candidate, node: Node) -> guards.RuleFacts:
        """The slots of a rule with a budget over all nodes it selects, and when its last rescue of this node ended."""
        slots = NO_SLOTS
        if candidate.rule.budget is not None:
            if candidate.name not in self._rules:
                rows = capacity.eligible(self._cluster).values_list("labels", flat=True)
                selected = sum(match.label_refusal(candidate.rule, labels) is None for labels in rows)
                # These nodes count whatever has become of them since (invariant 36).
                held = capacity.taken(self._cluster, recheck=self._recheck).filter(
                    rule=candidate.name, node__in_cluster=True
                )
                self._rules[candidate.name] = selected, set(held.values_list("node", flat=True))
            selected, held_by = self._rules[candidate.name]
            more = {it.node.pk for it in self._added if it.rule == candidate.name}
            slots = guards.Slots(by="rule", name=candidate.name, eligible=selected, taken=len(held_by | more))
        return guards.RuleFacts(slots=slots, last_ended_at=self._ended.get((node.pk, candidate.name)))

    @cached_property
    def _ended(self) -> dict[tuple[int, str], datetime]:
        """The end of each node's last rescue: by node and rule, and by node and "" for any rescue."""
        rows = Rescue.objects.filter(node__in=self._nodes, state__in=lifecycle.CLOSED_RESCUE).order_by()
        found: dict[tuple[int, str], datetime] = {}
        for node, rule, at in (
            rows.values("node", "rule").annotate(at=Max("closed_at")).values_list("node", "rule", "at")
        ):
            if at is not None:
                found[node, rule] = max(at, found.get((node, rule), at))
                found[node, ""] = max(at, found.get((node, ""), at))
        return found

    @cached_property
    def _faulty(self) -> guards.FaultyNodes:
        return capacity.faulty(self._cluster, now=self._now)

    @cached_property
    def _past(self) -> guards.FaultHistory:
        return capacity.past(self._cluster, now=self._now, nodes=self._eligible)

    @cached_property
    def _windows(self) -> tuple[Maintenance, ...]:
        """The windows of now: those of a series that have not begun may be many."""
        return tuple(fleet.maintenance(self._cluster, now=self._now).filter(starts_at__lte=self._now))


def _group(node: Node, by: guards.BudgetScope) -> str | None:
    """The value that the nodes of one budget share: their pool or their label's value. None for the whole cluster."""
    values: dict[str, str | None] = {"pool": node.pool, "label": node.labels.get(by.label_key)}
    return values.get(by.kind)


def _is_bounded(candidate: match.Candidate) -> bool:
    return candidate.rule.budget is not None or candidate.rule.cooldown is not None
