"""Which rule wins for which fault on which nodes: all active policies as one table, for the page and the REST API."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from kcover.decisions import match
from kcover.faults import fault
from kcover.policy import modes
from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import queries

MAX_COLUMNS, MAX_ROWS = 40, 300
SEEN_WITHIN = timedelta(days=30)
UNLISTED = 2**31 - 1  # stands for a numeric code that no rule lists and no catalog knows

Fault = tuple[str, str]  # kind and code; no code: any other fault of the kind


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that no rule can tell apart: of one pool, with the same values of the labels that rules select by."""

    cluster: str
    pool: str
    labels: Mapping[str, str]
    nodes: int
    example: str
    external: bool


@dataclass(frozen=True, slots=True)
class Winner:
    """A rule that runs, in the strictest mode of installation, cluster and rule."""

    candidate: match.Candidate
    mode: str


@dataclass(frozen=True, slots=True)
class Row:
    """A fault with the rules of each group: the first runs; one more follows where it waits for repeated faults."""

    kind: str
    code: str
    cells: tuple[tuple[Winner, ...], ...]


@dataclass(frozen=True, slots=True)
class Winners:
    """The table. ``more_rows`` and ``more_groups``: how many are left out."""

    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    more_rows: int
    more_groups: int


def winners(
    who: accounts.Principal, *, now: datetime, kind: str = "", code: str = "", pool: str = "", node: Node | None = None
) -> Winners:
    """Returns the rules that win on the nodes that ``who`` sees; on one pool or ``node`` only, for some faults only."""
    nodes = accounts.visible(who, Node.objects.filter(in_cluster=True), node="")
    if pool:
        nodes = nodes.filter(pool=pool)
    if node is not None:
        nodes = nodes.filter(pk=node.pk)
    rules = queries.candidates()
    groups = _groups(nodes, {key for candidate in rules for key in candidate.rule.labels or ()})
    faults = _faults(rules, _seen(who, now), kind=kind, code=code)
    shown = groups[:MAX_COLUMNS]
    clusters: dict[str, tuple[str, list[match.Candidate]]] = {}
    for name in {group.cluster for group in shown}:
        cluster = Cluster.objects.get(name=name)
        mode = modes.strictest(fleet.mode_of(cluster)[0], fleet.own_mode(cluster))
        clusters[name] = mode, match.rank(queries.candidates(cluster.pk))
    rows = tuple(_row(one, shown, clusters) for one in faults[:MAX_ROWS])
    return Winners(tuple(shown), rows, max(0, len(faults) - MAX_ROWS), max(0, len(groups) - MAX_COLUMNS))


def _row(wanted: Fault, groups: Iterable[Group], clusters: Mapping[str, tuple[str, list[match.Candidate]]]) -> Row:
    kind, code = wanted
    asked = code or (str(UNLISTED) if kind in fault.NUMERIC_KINDS else "")
    covering = {
        name: [one for one in ranked if match.fault_refusal(one.rule, kind=kind, code=asked, application=False) is None]
        for name, (_, ranked) in clusters.items()
    }
    cells = []
    for group in groups:
        mode = clusters[group.cluster][0]
        fitting = (one for one in covering[group.cluster] if match.label_refusal(one.rule, group.labels) is None)
        cells.append(tuple(Winner(one, modes.strictest(mode, one.rule.mode)) for one in _until_certain(fitting)))
    return Row(kind, code, tuple(cells))


def _until_certain(fitting: Iterable[match.Candidate]) -> list[match.Candidate]:
    """The rules that wait for repeated faults, and the first one after them, which runs at once."""
    found = []
    for one in fitting:
        found.append(one)
        if one.rule.minimum is None:
            break
    return found


def _groups(nodes: QuerySet[Node], keys: set[str]) -> list[Group]:
    found: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[str]] = {}
    external: dict[str, bool] = {}
    rows = nodes.order_by("cluster__name", "pool", "name").values_list(
        "cluster__name", "cluster__decision_mode", "pool", "name", "labels"
    )
    for cluster, decided_by, pool, name, labels in rows.iterator(chunk_size=2000):
        external[cluster] = decided_by == "external"
        selected = tuple(sorted((key, str(labels[key])) for key in keys if key in labels))
        found.setdefault((cluster, pool, selected), []).append(name)
    return [
        Group(cluster, pool, dict(selected), len(names), names[0], external[cluster])
        for (cluster, pool, selected), names in found.items()
    ]


def _seen(who: accounts.Principal, now: datetime) -> set[Fault]:
    """The faults of the last days, whether or not a rule is for them."""
    rows = accounts.visible(who, Incident.objects.filter(node__isnull=False, opened_at__gte=now - SEEN_WITHIN))
    return set(rows.order_by().values_list("kind", "code").distinct()[: MAX_ROWS * 2])


def _faults(rules: Iterable[match.Candidate], seen: set[Fault], *, kind: str, code: str) -> list[Fault]:
    """The faults of the table: those that rules list, those of the last days, and any other of each kind."""
    found = set(seen)
    for candidate in rules:
        rule = candidate.rule
        found |= {(of, listed) for of, codes in rule.listed.items() for listed in codes}
        found |= {(of, "") for of in (*rule.kinds, *(fault.NUMERIC_KINDS if rule.any_fault else ()))}
    found |= {(of, "") for of in fault.NUMERIC_KINDS}
    if code:
        found = {(kind or "xid", code)}
    kinds = [of for of in fault.INCIDENT_KINDS if kind in ("", of)]
    return sorted(
        (one for one in found if one[0] in kinds),
        key=lambda one: (kinds.index(one[0]), not one[1], int(one[1]) if one[1].isdecimal() else 0, one[1]),
    )


def is_code(kind: str, code: str) -> bool:
    """Returns whether the text can be a code of the kind; "" is any code."""
    if not code or (kind or "xid") not in fault.NUMERIC_KINDS:
        return len(code) <= 200
    return code.isascii() and code.isdecimal() and len(code) <= 10
