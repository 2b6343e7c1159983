"""How many more nodes the guards allow to be isolated now: by the settings, counts and limits that decisions use."""

from collections import Counter
from collections.abc import Hashable, Mapping
from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet

from kcover.decisions import guards
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.queries import capacity, counts

MAX_GROUPS: Final = 50  # pools or label values of a selection; a guard that counts over more of them is left out


def of(cluster: Cluster, rows: QuerySet[Node], *, now: datetime) -> dict[str, int]:
    """Returns the room of each guard that limits something here, by guard, for nodes of the cluster.

    ``breaker``, ``budget`` and ``floor``: what is left. If the nodes belong to several pools or label values, more room
    than a group has nodes does not count. ``maintenance`` and ``exclusion``: the nodes that they do not protect; absent
    if they protect none. Nodes without GPUs are not counted, because no limit applies to them.
    """
    rows = rows.filter(gpus__gt=0)
    settings = fleet.guards_of(cluster)
    members = list(rows.order_by("name").values_list("pk", "pool", "labels"))
    if not members:
        return {}
    return _rooms(cluster, settings, members, now=now) | _protected(cluster, rows, len(members), now=now)


def around_isolation(node: Node, *, now: datetime) -> dict[str, tuple[int, int]]:
    """Returns how many nodes each guard still allows, before and after the node is isolated, by guard.

    0 after a person has passed a guard that allowed none. Empty for a node that counts as isolated already, since it
    needs no room.
    """
    settings = fleet.guards_of(node.cluster)
    lately = capacity.isolating(node.cluster, since=now - settings.breaker.window)
    if capacity.taken(node.cluster).filter(node=node).exists() or lately.filter(node=node).exists():
        return {}
    rooms = _rooms(node.cluster, settings, [(node.pk, node.pool, node.labels)], now=now) if node.gpus else {}
    return {guard: (room, max(0, room - 1)) for guard, room in rooms.items()}


def _rooms(
    cluster: Cluster, settings: guards.Settings, members: list[tuple[Any, ...]], *, now: datetime
) -> dict[str, int]:
    by, inside = settings.budget.by, _inside(cluster, settings, members)
    groups: Mapping[str, Mapping[int, Hashable]] = {
        "breaker": dict.fromkeys((pk for pk, _, _ in members), ""),
        "budget": {pk: {"pool": pool, "label": labels.get(by.label_key)}.get(by.kind) for pk, pool, labels in members},
        "floor": {pk: pool for pk, pool, _ in members},
    }
    sizes = {guard: Counter(group.values()) for guard, group in groups.items()}
    counted = [guard for guard in groups if len(sizes[guard]) <= MAX_GROUPS]
    samples = {guard: {value: pk for pk, value in groups[guard].items()} for guard in counted}
    keys = {pk for chosen in samples.values() for pk in chosen.values()} | {min(pks) for pks in inside.values()}
    nodes = {node.pk: node for node in Node.objects.filter(pk__in=keys)}
    counts_now = counts.Counts(cluster, settings=settings, now=now, nodes=list(nodes.values()))
    facts = {pk: counts_now.of(node) for pk, node in nodes.items()}
    rooms = {pk: guards.headroom(settings, known) for pk, known in facts.items()}
    found: dict[str, int] = {}
    for guard in counted:
        left = {value: rooms[pk][guard] for value, pk in samples[guard].items() if guard in rooms[pk]}
        if len(left) == 1:
            found[guard] = next(iter(left.values()))
        elif left:
            found[guard] = sum(min(room, sizes[guard][value]) for value, room in left.items())
    for place, pks in inside.items():
        others = len(members) - len(pks)
        room = guards.in_scopes(settings, facts[min(pks)]).get(place, len(pks))  # its labels may have changed since
        most = others + min(room, len(pks)) if others else room
        found["budget"] = min(most, found.get("budget", most))
    return found


def _inside(
    cluster: Cluster, settings: guards.Settings, members: list[tuple[Any, ...]]
) -> Mapping[int, frozenset[int]]:
    """The members in each scope with a budget of its own, by its place in the settings; only scopes that have any."""
    found = {
        place: frozenset(
            pk for pk, pool, labels in members if one.scope.covers(pool=pool, labels=labels, setting=cluster.topology)
        )
        for place, one in enumerate(settings.budget.scopes)
    }
    return {place: pks for place, pks in found.items() if pks}


def _protected(cluster: Cluster, rows: QuerySet[Node], number: int, *, now: datetime) -> dict[str, int]:
    found: dict[str, int] = {}
    excluded = number - capacity.not_excluded(rows).count()
    if excluded:
        found["exclusion"] = number - excluded
    windows = list(fleet.maintenance(cluster, now=now).filter(starts_at__lte=now))
    if windows:
        nodes = rows.only("name", "pool", "labels", "cluster_id")
        covered = sum(any(window.covers(node) for window in windows) for node in nodes.iterator())
        if covered:
            found["maintenance"] = number - covered
    return found
