"""The guards of a cluster with their current counts and limits."""

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import Count, F, Q, QuerySet
from django.utils.translation import gettext as _, ngettext

from kcover import reasons
from kcover.decisions import guards
from kcover.decisions.guards import chance
from kcover.nodes import scopes
from kcover.plans import lifecycle, plan
from kcover.values import limits
from kcover_portal.console.fault_names import fault_name
from kcover_portal.console.reads import budget_groups
from kcover_portal.console.reads.step_facts import duration
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Maintenance, Node, PendingChange
from kcover_portal.fleet.services import node_scopes, pending_changes
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import localization
from kcover_portal.rescue.control import requests
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import capacity, needs_person, symptoms

NEAR_LIMIT_SHARE = 0.75  # of the limit: from here on a gauge shows that little is left
MAX_ROWS = 12  # groups of a budget, pools of a floor: the fullest ones


@dataclass(frozen=True, slots=True)
class Gauge:
    """One count against its limit. ``state`` is of ``presentation.TABLES["guard"]``; ``least``: the limit is a floor.

    ``limit`` None: there is no limit, and nothing is counted.
    """

    guard: str
    scope: str
    count: int
    limit: int | None
    state: str
    note: str = ""
    least: bool = False
    group: scopes.Scope | None = None  # a group with a budget of its own

    @property
    def group_query(self) -> str:
        """The query of the address at which the budget of the group is changed."""
        if self.group is None:
            return ""
        return urlencode({"by": self.group.domain or self.group.kind, "which": ", ".join(self.group.names)})

    @property
    def share(self) -> int:
        """Percentage of the limit in use; for a floor, how close the count is to it."""
        if not self.limit:
            return 0
        if self.least:
            return min(100, round(self.limit / max(self.count, 1) * 100))
        return min(100, round(self.count / self.limit * 100))


@dataclass(frozen=True, slots=True)
class ClusterSafety:
    """One cluster: its mode, its guards as set, their gauges, storms that are open and nodes left out."""

    cluster: Cluster
    mode: str
    settings: guards.Settings
    eligible: int
    gauges: Sequence[Gauge]
    storms: Sequence[Incident]
    excluded: Sequence[Node]

    @property
    def state(self) -> str:
        """The worst state of its gauges."""
        return min((gauge.state for gauge in self.gauges), key=SEVERITY.index, default="off")


SEVERITY = ("tripped", "near", "calm", "off")


def bounds(cluster: Cluster, *, now: datetime) -> ClusterSafety:
    """The guards, storms and excluded nodes of one cluster."""
    settings = fleet.guards_of(cluster)
    eligible = capacity.eligible(cluster).count()
    opened = list(storms([cluster]))
    found = [
        _storm(cluster, settings, opened, eligible, now=now),
        *_rates(cluster, settings, eligible, now=now),
        _breaker(cluster, settings, eligible, now=now),
        *_budget(cluster, settings),
        *_floors(cluster, settings),
        _plans(cluster, settings),
    ]
    excluded = Node.objects.filter(cluster=cluster, gone_at=None, **{f"labels__{guards.EXCLUDE_LABEL}": "true"})
    return ClusterSafety(cluster, fleet.mode_of(cluster)[0], settings, eligible, found, opened, list(excluded[:100]))


def gauges(clusters: Collection[Cluster], *, now: datetime) -> list[tuple[Cluster, list[Gauge]]]:
    """The gauges of the breaker and the budget of each cluster, for the overview."""
    found = []
    for cluster in clusters:
        settings = fleet.guards_of(cluster)
        eligible = capacity.eligible(cluster).count()
        budget = sorted(_budget(cluster, settings), key=lambda gauge: -gauge.share)[:1]
        found.append((cluster, [_breaker(cluster, settings, eligible, now=now), *budget]))
    return found


def open_changes(clusters: Collection[Cluster], *, now: datetime) -> QuerySet[PendingChange]:
    """Changes that wait for another admin, of these clusters or of all."""
    rows = PendingChange.objects.filter(Q(cluster=None) | Q(cluster__in=clusters), state="open", expires_at__gt=now)
    return rows.select_related("cluster").order_by("pk")


def change_lines(change: PendingChange) -> list[tuple[str, str, str | None]]:
    """Each setting that the change concerns: its name, its value at the request, and the requested value.

    None in place of that: the setting stays, and the change relies on it.
    """
    before, after = pending_changes.shown(change.before), pending_changes.shown(change.changes)
    return [
        (name, _written(before.get(name)), _written(after[name]) if name in after else None)
        for name in {**after, **(before if change.kind == pending_changes.SETTINGS else {})}
    ]


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def windows(clusters: Collection[Cluster], *, now: datetime) -> QuerySet[Maintenance]:
    """Current and future maintenance windows of these clusters or of all."""
    rows = Maintenance.objects.filter(Q(cluster=None) | Q(cluster__in=clusters), ends_at__gt=now)
    return rows.select_related("cluster").defer("members").order_by("starts_at", "pk")


def next_windows(clusters: Collection[Cluster], *, now: datetime) -> list[Maintenance]:
    """The windows; of those that repeat, the one that is on or comes next, with ``left``: how many follow it."""
    found: list[Maintenance] = []
    of_series: dict[uuid.UUID, Maintenance] = {}
    for window in windows(clusters, now=now):
        first = of_series.setdefault(window.series, window) if window.series is not None else window
        if first is window:
            window.left = 0
            found.append(window)
        else:
            first.left += 1
    return found


def where_of(scope: scopes.Scope) -> str:
    """The nodes that a scope names, for people; "" for a whole cluster or all of them."""
    kind, name = scope.shown
    return localization.say(reasons.of(f"scope_{kind}", name=name)) if kind else ""


def holding(node: Node, verb: str, *, now: datetime) -> dict[str, reasons.Reason]:
    """The guards that hold back an act on the node and that a named person may pass over, each with its reason.

    Guards that a person's own act always passes are left out. So is the exclusion, which nobody can override.
    """
    acts = [] if verb in requests.ENDING else [step.name for step in plan.manual(verb)]
    if not acts:
        return {}
    settings = fleet.guards_of(node.cluster)
    # Evaluate as if every guard were overridden: those that the verdict lists as overridden hold the act back now.
    everyone = dict.fromkeys(guards.GUARDS, "")
    verdicts, _ = requests.guard_verdicts(node, acts, settings=settings, overrides=everyone, now=now)
    found: dict[str, reasons.Reason] = {}
    for reason in (reason for verdict in verdicts for reason in verdict.overridden):
        why = dict(reason.params)["why"]
        assert isinstance(why, reasons.Reason)  # the finding of the guard
        guard = guards.guard_of(why.code)
        if guard is not None and guard not in requests.BY_HAND:
            found.setdefault(guard, why)
    return found


def storms(clusters: Collection[Cluster]) -> QuerySet[Incident]:
    return needs_person.open_storms().filter(cluster__in=clusters).select_related("cluster")


def _storm(
    cluster: Cluster, settings: guards.Settings, storms: Sequence[Incident], eligible: int, *, now: datetime
) -> Gauge:
    """How many nodes an open storm has; without one, how many share a code of late. A storm opens with a decision."""
    storm = settings.storm
    if not storm.enabled:
        return Gauge("storm", "", 0, None, "off")
    limit = max(storm.nodes, limits.Limit(percent=storm.percent).of(eligible))
    within = duration(storm.window)
    note = _("nodes with the same symptom within %(within)s") % {"within": within}
    if storms:
        return Gauge("storm", "", max(len(row.scope) for row in storms), limit, "tripped", note)
    found = symptoms.widest_code(cluster.pk, since=now - storm.window)
    if found is None:
        return Gauge("storm", "", 0, limit, "calm", note)
    (kind, code), count = found
    note = _("nodes with %(fault)s within %(within)s") % {"fault": fault_name(kind, code), "within": within}
    return Gauge("storm", "", count, limit, "near" if count >= limit * NEAR_LIMIT_SHARE else "calm", note)


def _rates(cluster: Cluster, settings: guards.Settings, eligible: int, *, now: datetime) -> list[Gauge]:
    if not settings.rate.enabled or eligible < 1:
        return [Gauge("rate", "", 0, None, "off")]
    faulty, past = capacity.faulty(cluster, now=now), capacity.past(cluster, now=now, nodes=eligible)
    found = []
    for window, count in zip(chance.WINDOWS, (faulty.ten_minutes, faulty.hour, faulty.six_hours), strict=True):
        limit = chance.limit(eligible, window=window, past=past)
        note = _("newly faulty nodes within %(within)s") % {"within": duration(window)}
        found.append(Gauge("rate", "", count, limit, _state(count, limit), note))
    return found


def _breaker(cluster: Cluster, settings: guards.Settings, eligible: int, *, now: datetime) -> Gauge:
    breaker = settings.breaker
    if not breaker.enabled:
        return Gauge("breaker", "", 0, None, "off")
    limit = breaker.limit.of(eligible)
    count = capacity.isolated(cluster, since=now - breaker.window)
    note = _("isolated within %(within)s") % {"within": duration(breaker.window)}
    return Gauge("breaker", "", count, limit, _state(count, limit), note)


def _budget(cluster: Cluster, settings: guards.Settings) -> list[Gauge]:
    """One gauge per group of nodes with its own budget, the fullest first."""
    return [*_budgets_by_group(cluster, settings), *_budgets_of_scopes(cluster, settings)]


def _budgets_of_scopes(cluster: Cluster, settings: guards.Settings) -> list[Gauge]:
    """One gauge for each scope with a budget of its own, in the order of the settings."""
    found = []
    for one in settings.budget.scopes:
        inside = node_scopes.nodes(cluster, one.scope).values("pk")
        sums = (
            capacity.eligible(cluster)
            .filter(pk__in=inside)
            .aggregate(of=Count("pk"), used=Count("pk", filter=Q(pk__in=capacity.taken(cluster).values("node"))))
        )
        if not sums["of"]:
            found.append(Gauge("budget", where_of(one.scope), 0, None, "off", _("No node is in it."), group=one.scope))
            continue
        most = one.limit.of(sums["of"])
        state, note = _state(sums["used"], most), _("isolated or in rescue")
        found.append(Gauge("budget", where_of(one.scope), sums["used"], most, state, note, group=one.scope))
    return found


def _budgets_by_group(cluster: Cluster, settings: guards.Settings) -> list[Gauge]:
    limit, by, taken = settings.budget.limit, settings.budget.by, capacity.taken(cluster).values("node")
    rows = capacity.eligible(cluster).order_by()
    if limit is None:
        used = rows.filter(pk__in=taken).count()
        note = ngettext(
            "%(n)d node isolated or in rescue; no limit set", "%(n)d nodes isolated or in rescue; no limit set", used
        )
        return [Gauge("budget", "", used, None, "off", note % {"n": used})]
    groups = rows.annotate(group=budget_groups.expression(by)).values("group")
    found = []
    for group in groups.annotate(of=Count("pk"), used=Count("pk", filter=Q(pk__in=taken))):
        most, name = limit.of(group["of"]), budget_groups.name(by, group["group"])
        state = _state(group["used"], most)
        found.append(Gauge("budget", name, group["used"], most, state, _("isolated or in rescue")))
    return sorted(found, key=lambda gauge: (-gauge.share, gauge.scope))[:MAX_ROWS]


def _floors(cluster: Cluster, settings: guards.Settings) -> list[Gauge]:
    percent = settings.floor.percent
    if percent is None:
        return [Gauge("floor", "", 0, None, "off")]
    well = Q(ready=True, unschedulable=False) & ~Q(pk__in=capacity.taken(cluster).values("node"))
    pools = capacity.eligible(cluster).order_by().values("pool").annotate(of=Count("pk"), well=Count("pk", filter=well))
    found = []
    for pool in pools.order_by(F("well") * 1.0 / F("of"), "pool")[:MAX_ROWS]:
        floor = limits.Limit(percent=percent).of(pool["of"])
        state = "tripped" if pool["well"] <= floor else "near" if pool["well"] <= floor + 1 else "calm"
        note = _("healthy of %(n)d") % {"n": pool["of"]}
        found.append(Gauge("floor", pool["pool"] or _("no pool"), pool["well"], floor, state, note, least=True))
    return found


def _plans(cluster: Cluster, settings: guards.Settings) -> Gauge:
    opened = Rescue.objects.filter(cluster=cluster, origin=Rescue.Origin.API, state__in=lifecycle.OPEN_RESCUE).count()
    limit = settings.plans.limit
    return Gauge("plans", "", opened, limit, _state(opened, limit), _("external plans open"))


def _state(count: int, limit: int) -> str:
    if limit < 1:
        return "off"  # there is no node to count over, so nothing is done at all
    if count >= limit:
        return "tripped"
    return "near" if count >= limit * NEAR_LIMIT_SHARE else "calm"
