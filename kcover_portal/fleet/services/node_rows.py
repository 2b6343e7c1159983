"""Keeps the rows of nodes in sync with a cluster, from a batch of watch events or from a full list.

A batch costs one SELECT. What differs is written with one UPDATE, and one INSERT for nodes without a row. Heartbeats
of nodes change no column, so they write nothing.
"""

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Self

from django.db import DataError, IntegrityError, transaction

from kcover.machines import machine_drivers
from kcover.nodes import readiness_taint
from kcover.wire import fields as wire_fields
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import boot_rows, bulk_sql, node_columns, node_inventories
from kcover_portal.kube import port
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import Prepared

log = logging.getLogger(__name__)

MAX_SIGNALS = 20  # for one batch; more changed nodes are announced to the pages with a single signal

# The columns of a node's row that come from the cluster, with their SQL types. The first ones may be null.
TIMES = (
    *("ready_since", "unready_since", "gone_at", "machine_since", "machine_after", "not_ready_since"),
    "unallocatable_since",
)
TEXTS = ("uid", "pool", "model", "boot_id", "kubelet", "address", "system_uuid", "provider_id", "runtime")
NULLABLE = dict.fromkeys(TIMES, "timestamptz")
REQUIRED = {
    **dict.fromkeys(TEXTS, "text"),
    **dict.fromkeys(
        ("labels", "taints", "conditions", "marks", "past_boots", "boot_times", "addresses", "restated"), "jsonb"
    ),
    **dict.fromkeys(("in_cluster", "unschedulable", "ready"), "boolean"),
    **dict.fromkeys(("gpus", "unallocatable"), "integer"),
}
MAX_NAME = 253  # characters
JOINING = timedelta(hours=1)  # so long after a node joined, it may name its machine, or a cloud's controller may
# By a value that is not cleaned. Unlike what a source sends, a row may also break a constraint: another node has it.
UNSTORABLE = (DataError, IntegrityError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class ChangedNode:
    """A row that was created or updated.

    ``node`` is the row as it is now. ``before`` has the previous values of the columns that changed; it is empty for a
    created row. ``new``: the node joined the cluster, came back to it, or has another number of GPUs.
    """

    node: Node
    before: Mapping[str, Any]
    new: bool


@dataclass(frozen=True, slots=True)
class _ClusterFacts:
    """What some nodes need to know of their cluster; each is read only then.

    ``pool_keys``: the keys of the label that names the pool. ``watched_at``: when it last answered before this batch.
    """

    pool_keys: Callable[[], tuple[str, ...]]
    watched_at: Callable[[], datetime | None]

    def was_listed(self) -> bool:
        """Returns whether the cluster was listed before this batch."""
        return self.watched_at() is not None

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        watched = Cluster.objects.filter(pk=cluster.pk).values_list("watched_at", flat=True)
        return cls(functools.cache(lambda: queries.pool_labels(cluster)), functools.cache(watched.first))


@dataclass(slots=True)
class _Sighting:
    """The content of a batch about one node.

    ``last``: its last state, None if the batch only deletes it. ``boots``: its boot ids in their order. ``present``: it
    is in the cluster at the end of the batch. ``deleted``: it was deleted in between.
    """

    last: port.Node | None = None
    boots: list[str] = field(default_factory=list)
    present: bool = False
    deleted: bool = False

    def add(self, node: port.Node, *, deleted: bool) -> None:
        self.present = not deleted
        if deleted:
            self.deleted = True
        else:
            self.last = node
            self.boots.append(node_columns.text("boot_id", node.boot_id))


def sync_events(cluster: Cluster, events: Iterable[port.NodeEvent], *, now: datetime) -> list[ChangedNode]:
    """Synchronizes the rows with watch events, given in the cluster's order; returns the changes.

    The last event of a node counts. Boots that came and went within the batch are kept in ``past_boots``.
    """
    seen: dict[str, _Sighting] = {}
    for event in events:
        if event.node is not None and _is_named(cluster, event.node):
            seen.setdefault(event.node.name, _Sighting()).add(event.node, deleted=event.kind == "DELETED")
    if not seen:
        return []
    return _sync_storable(cluster, seen, _named(cluster, list(seen)), now=now)


def _named(cluster: Cluster, names: Sequence[str]) -> Iterable[Node]:
    if len(names) == 1:
        return _NAMED.rows(cluster=cluster.pk, name=names[0])
    return Node.objects.order_by().filter(cluster=cluster, name__in=names)


_NAMED = Prepared(
    lambda cluster, name: Node.objects.order_by().filter(cluster=cluster, name=name), cluster=int, name=str
)


def sync_list(cluster: Cluster, listed: Collection[port.Node], *, now: datetime) -> list[ChangedNode]:
    """Synchronizes all rows with a full list; returns the changes. Nodes that are not listed are gone."""
    rows = _OF_CLUSTER.rows(cluster=cluster.pk)
    seen = {row.name: _Sighting() for row in rows}
    for node in listed:
        if _is_named(cluster, node):
            seen[node.name] = _Sighting()
            seen[node.name].add(node, deleted=False)
    return _sync_storable(cluster, seen, rows, now=now)


_OF_CLUSTER = Prepared(lambda cluster: Node.objects.filter(cluster=cluster), cluster=int)


def _is_named(cluster: Cluster, node: port.Node) -> bool:
    """Returns whether the node has a name that Kubernetes accepts: it is a part of addresses, so it has no slash."""
    if len(node.name) <= MAX_NAME and wire_fields.NODE.fullmatch(node.name):
        return True
    log.error("cluster %s: a node is skipped, because no node can have its name: %r", cluster.name, node.name[:300])
    return False


def _sync_storable(
    cluster: Cluster, seen: Mapping[str, _Sighting], rows: Iterable[Node], *, now: datetime
) -> list[ChangedNode]:
    """Synchronizes what can be stored. A node that the database refuses is skipped; the others are not held back."""
    try:
        return _sync(cluster, seen, rows, now=now)
    except UNSTORABLE as error:
        names = list(seen)
        if len(names) == 1:
            log.error("cluster %s: node %s is skipped, because it cannot be stored: %s", cluster.name, names[0], error)
            return []
    changes = []
    for part in (names[: len(names) // 2], names[len(names) // 2 :]):
        changes += _sync_storable(cluster, {name: seen[name] for name in part}, _named(cluster, part), now=now)
    return changes


def _sync(cluster: Cluster, seen: Mapping[str, _Sighting], rows: Iterable[Node], *, now: datetime) -> list[ChangedNode]:
    known = {row.name: row for row in rows}
    facts = _ClusterFacts.of(cluster)
    created = [
        ChangedNode(_created(cluster, sighting.last, sighting, facts, now=now), {}, new=sighting.present)
        for name, sighting in seen.items()
        if name not in known and sighting.last is not None
    ]
    updated = [
        change
        for name, sighting in seen.items()
        if name in known and (change := _update(known[name], sighting, facts, now=now)) is not None
    ]
    changes = [*created, *updated]
    if not changes:
        return []
    with transaction.atomic():
        # By name, as enrolments insert names that are not listed yet: otherwise each could wait for the other.
        new = sorted([change.node for change in created], key=lambda node: node.name)
        bulk_sql.insert(new, unique="name")
        _write(updated, now=now)
        node_inventories.keep_of_boot([one.node.pk for one in updated if "machine_since" in one.before], now=now)
        for record in [change.node.pk for change in changes] if len(changes) <= MAX_SIGNALS else [0]:
            doorbell.publish("node", record, cluster=cluster.name)
    return changes


def _created(cluster: Cluster, last: port.Node, sighting: _Sighting, facts: _ClusterFacts, *, now: datetime) -> Node:
    row = Node(cluster=cluster, name=last.name, created_at=now, synced_at=now)
    for column, value in _columns(row, sighting, facts, now=now).items():
        setattr(row, column, value)
    return row


def _update(row: Node, sighting: _Sighting, facts: _ClusterFacts, *, now: datetime) -> ChangedNode | None:
    """Sets what differs on the row; None if nothing does."""
    columns = _columns(row, sighting, facts, now=now)
    if sighting.deleted and sighting.present:
        row.in_cluster = False  # it left and came back
    before = {column: getattr(row, column) for column, value in columns.items() if getattr(row, column) != value}
    if not before:
        return None
    for column in before:
        setattr(row, column, columns[column])
    row.synced_at = now
    return ChangedNode(row, before, new=sighting.present and not before.keys().isdisjoint(("in_cluster", "gpus")))


def _write(changes: Sequence[ChangedNode], *, now: datetime) -> None:
    """Writes the changed columns of the rows; the other columns keep their values."""
    if not changes:
        return
    kept = ", ".join(f"{column} = coalesce(given.{column}, fleet_node.{column})" for column in REQUIRED)
    times = ", ".join(f"{column} = given.{column}" for column in NULLABLE)
    given = [
        {
            "node": change.node.pk,
            **{column: bulk_sql.moment(getattr(change.node, column)) for column in NULLABLE},
            **{column: getattr(change.node, column) for column in change.before if column in REQUIRED},
        }
        for change in changes
    ]
    bulk_sql.lock_nodes([change.node.pk for change in changes])
    bulk_sql.run(
        f"""UPDATE fleet_node SET {kept}, {times}, synced_at = %s
            FROM {bulk_sql.given(node="bigint", **NULLABLE, **REQUIRED)} WHERE fleet_node.id = given.node""",  # nosec B608
        [bulk_sql.moment(now), bulk_sql.rows(given)],
    )


def _columns(row: Node, sighting: _Sighting, facts: _ClusterFacts, *, now: datetime) -> dict[str, Any]:
    """The columns as they are after the batch; of a node that is gone, those that the batch tells."""
    columns = node_columns.shown(sighting.last) if sighting.last is not None else {}
    if columns:
        if not row.pk or row.labels != columns["labels"]:
            columns["pool"] = node_columns.text("pool", queries.pool_of(columns["labels"], facts.pool_keys()))
        columns["past_boots"], columns["boot_times"] = boot_rows.after(
            row, sighting.boots, watched_at=facts.watched_at() if row.boot_id != columns["boot_id"] else None, now=now
        )
        same = row.uid == columns["uid"]
        columns["unready_since"] = _since(not columns["ready"], same and row.unready_since, now)
        columns["not_ready_since"] = _since(_is_not_ready(columns["taints"]), same and row.not_ready_since, now)
        columns["unallocatable_since"] = _since(columns["unallocatable"] > 0, same and row.unallocatable_since, now)
        if _is_another_machine(row, columns):
            columns["machine_since"] = now if facts.was_listed() else None
            columns["machine_after"] = facts.watched_at()
        joined = sighting.last.created_at if sighting.last is not None else None
        columns["restated"] = _restated(row, columns, joining=now - (joined or row.created_at) <= JOINING)
    if not sighting.present and (columns or row.in_cluster):
        columns |= {"in_cluster": False, "ready": False, "gone_at": now}
    return columns


def _since(holds: bool, since: datetime | Literal[False] | None, now: datetime) -> datetime | None:
    return (since or now) if holds else None


def _is_not_ready(taints: Iterable[Mapping[str, Any]]) -> bool:
    return any(taint["key"] == readiness_taint.KEY for taint in taints)


def _restated(row: Node, columns: Mapping[str, Any], *, joining: bool) -> dict[str, str]:
    """Which names of its machine the node has changed since it joined, with the ones that it joined with.

    Its kubelet states both by itself. A node that was created again has joined again. No UUID, or a malformed one, is
    another one too: a stolen node could state the UUID of any machine after it.
    """
    if row.uid != columns["uid"]:
        return {}
    found = dict(row.restated)
    for name in ("system_uuid", "provider_id"):
        before, after = getattr(row, name), columns[name]
        if not machine_drivers.same_name(name, before, after) and (before or not joining):
            found.setdefault(name, before)
    return found


def _is_another_machine(row: Node, columns: Mapping[str, Any]) -> bool:
    """Returns whether the name has a machine that it did not have before. Without identities, the uid decides."""
    if not row.uid:
        return True
    same = machine_drivers.same_machine(row.system_uuid, columns["system_uuid"])
    before, after = row.provider_id, columns["provider_id"]
    if same is None and not (before and after):
        return bool(row.uid != columns["uid"])
    return same is False or (bool(before and after) and before != after)
