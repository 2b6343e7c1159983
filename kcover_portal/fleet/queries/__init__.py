"""Reads the fleet."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet

from kcover.decisions import guards
from kcover.faults.fault import Command as WireCommand
from kcover.machines import part_serials
from kcover.nodes import health, silence, topology
from kcover_portal.encryption import SecretUnreadable
from kcover_portal.fleet.models import Agent, Cluster, Command, Hardware, Maintenance, Node
from kcover_portal.fleet.queries.modes import (
    MODES_WITHOUT_WRITES as MODES_WITHOUT_WRITES,
    holds_lease as holds_lease,
    may_lead as may_lead,
    mode_beside as mode_beside,
    mode_now as mode_now,
    mode_of as mode_of,
    modes_in as modes_in,
    own_mode as own_mode,
    with_mode as with_mode,
)
from kcover_portal.kube import connections, port
from kcover_portal.lib import outgoing
from kcover_portal.lib.prepared import Prepared

POOL_LABELS = topology.WELL_KNOWN["pool"]
DESTRUCTIVE = ("reboot", "reset_gpu")  # not offered while everything is paused
MODEL_LABEL = "nvidia.com/gpu.product"
AGENT_SILENT_AFTER = silence.HEARTBEAT * silence.SILENT_AFTER_INTERVALS
AGENT_LATE_AFTER = silence.HEARTBEAT * silence.LATE_AFTER_INTERVALS
WATCH_GAP = timedelta(seconds=75)  # the watch has contact with a cluster at least every 50 s
OUT_OF_REACH_AFTER = timedelta(minutes=2)  # then the last state says nothing about now (invariant 34)


def pool_labels(cluster: Cluster) -> tuple[str, ...]:
    """Returns the keys of the label that names the pool, now: the cluster's, or the platforms'. One query."""
    return topology.label_keys(_TOPOLOGY.first(cluster=cluster.pk) or {}, "pool")


_TOPOLOGY = Prepared(lambda cluster: Cluster.objects.filter(pk=cluster).values_list("topology", flat=True), cluster=int)


def pool_of(labels: dict[str, str], keys: Iterable[str] = POOL_LABELS) -> str:
    """Returns the pool from a node's labels; "" without one."""
    return topology.value_of(labels, keys)


def topology_of(node: Node) -> dict[str, str]:
    """Returns the node's rack, leaf switch, NVLink domain and pool by domain; "" where it is unknown."""
    return {**topology.of_node(node.labels, node.cluster.topology), "pool": node.pool}


def node_of(key: int) -> Node:
    """The node with its cluster, read now. Raises LookupError if it does not exist."""
    return _NODE.get(node=key)


def nodes_of(keys: Collection[int]) -> dict[int, Node]:
    """The nodes with their clusters by key; those that do not exist are left out. One query."""
    if len(keys) == 1:
        return {node.pk: node for key in keys for node in _NODE.rows(node=key)}
    return Node.objects.select_related("cluster").in_bulk(keys)


_NODE = Prepared(lambda node: Node.objects.order_by().select_related("cluster").filter(pk=node), node=int)


def machine_serials(nodes: Collection[int]) -> dict[int, str]:
    """The serial numbers of the nodes' machines by key, as agents reported them last; without unknown ones. One query.

    Placeholders of firmware count as unknown.
    """
    rows = Hardware.objects.filter(node__in=nodes).values_list("node", "machine_serial")
    return {node: serial for node, text in rows if (serial := part_serials.known(text))}


def job_recovery_now(cluster: Cluster) -> str:
    """The cluster's ``job_recovery`` at this moment. Raises Cluster.DoesNotExist."""
    return Cluster.objects.values_list("job_recovery", flat=True).get(pk=cluster.pk)


def guards_of(cluster: Cluster) -> guards.Settings:
    """Returns the cluster's guards: the defaults with the cluster's changes."""
    return guards.parse({**cluster.guards, "hold_down": cluster.hold_down})


def maintenance(cluster: Cluster | int, *, now: datetime) -> QuerySet[Maintenance]:
    """Returns current and future windows of this cluster and of all clusters."""
    return Maintenance.objects.filter(Q(cluster=cluster) | Q(cluster=None), ends_at__gt=now).select_related("cluster")


def commands_on_offer(nodes: Collection[int], *, now: datetime) -> dict[int, list[WireCommand]]:
    """Returns the unanswered commands by node, oldest first; nodes without commands are left out."""
    rows = _OFFERS_TO.rows(node=next(iter(nodes)), now=now) if len(nodes) == 1 else _offered(now).filter(node__in=nodes)
    found: dict[int, list[WireCommand]] = {}
    withheld: dict[int, bool] = {}  # by cluster
    for row in rows:
        cluster = row.node.cluster
        if row.kind in DESTRUCTIVE and withheld.setdefault(cluster.pk, mode_of(cluster)[0] in MODES_WITHOUT_WRITES):
            continue
        found.setdefault(row.node_id, []).append(as_wire(row))
    return found


def _offered(now: datetime) -> QuerySet[Command]:
    rows = Command.objects.filter(state=Command.State.OFFERED, expires_at__gt=now)
    return rows.select_related("node__cluster").order_by("created_at")


_OFFERS_TO = Prepared(lambda node, now: _offered(now).filter(node=node), node=int, now=datetime)


def commands_overdue(*, now: datetime) -> QuerySet[Command]:
    """The commands that were not answered in time."""
    return Command.objects.filter(state=Command.State.OFFERED, expires_at__lte=now)


def as_wire(row: Command) -> WireCommand:
    """Converts a command to its wire format."""
    return WireCommand(
        id=str(row.pk), kind=row.kind, args=row.args, created_at=row.created_at, expires_at=row.expires_at
    )


def agent_reports(node: Node, *, within: timedelta, now: datetime) -> bool:
    """Returns whether the node's agent has reported recently."""
    return agent_version(node, within=within, now=now) is not None


def agent_version(node: Node, *, within: timedelta, now: datetime) -> str | None:
    """Returns the version of the node's agent, "" if it names none; None if it has not reported recently."""
    return next((version for (version,) in _AGENT_VERSION.rows(node=node.pk, at=now - within)), None)


_AGENT_VERSION: Prepared[tuple[str]] = Prepared(
    lambda node, at: Agent.objects.filter(node=node, seen_at__gte=at).values_list("version"), node=int, at=datetime
)


def silent_agents(*, now: datetime) -> QuerySet[Agent]:
    """Returns agents of existing nodes that have not reported for ``AGENT_SILENT_AFTER``."""
    return Agent.objects.filter(seen_at__lt=now - AGENT_SILENT_AFTER, node__in_cluster=True)


def out_of_reach(cluster: Cluster, *, now: datetime) -> bool:
    """Returns whether a cluster that answered before does not answer now."""
    old = cluster.watched_at is not None and now - cluster.watched_at > OUT_OF_REACH_AFTER
    return old or bool(cluster.watch_error)


def reachable_without_gap(*, since: datetime, now: datetime) -> QuerySet[Cluster]:
    """Returns the clusters whose API servers have answered without a gap since ``since``."""
    steady = Q(reachable_since=None) | Q(reachable_since__lte=since)
    return Cluster.objects.filter(steady, watched_at__gte=now - WATCH_GAP, watch_error={})


def clusters_with_labels() -> list[Cluster]:
    return list(Cluster.objects.filter(autopilot_labels=True).order_by("pk"))


def clusters(names: Iterable[str] = ()) -> list[Cluster]:
    """Returns the registered clusters, all or those of these names."""
    rows = Cluster.objects.order_by("name")
    return list(rows.filter(name__in=list(names)) if names else rows)


def count_clusters() -> int:
    return Cluster.objects.count()


def unwatched(clusters: Iterable[Cluster]) -> list[Cluster]:
    """Returns the clusters whose watch fails; a person must restore the access."""
    return [cluster for cluster in clusters if cluster.watch_error]


def callback_secrets(cluster: Cluster, *, now: datetime) -> list[str]:
    """Returns the secrets that may sign a callback: the present one, and for a while the previous one.

    Raises SecretUnreadable.
    """
    until = cluster.decision_secret_before_until
    previous = cluster.decision_secret_before if until is not None and now < until else ""
    return [secret for secret in (cluster.decision_secret, previous) if secret]


def connect(cluster: Cluster) -> port.Cluster:
    """Returns the cluster's client, in web and live with fewer rights. Raises port.KubeError for bad credentials."""
    try:
        fewer = cluster.read_kubeconfig if settings.KCOVER_CLUSTER_ACCESS == "read" else ""
        kubeconfig, context = (fewer, "") if fewer else (cluster.kubeconfig, cluster.context)
    except SecretUnreadable as unreadable:
        raise port.Unavailable(str(unreadable)) from unreadable
    return connections.connect(
        cluster.pk, kubeconfig=kubeconfig, context=context, in_cluster=cluster.in_cluster, resolve=outgoing.addresses
    )


def nodes_with_offers(*, now: datetime) -> set[int]:
    """Returns the ids of nodes that have an unanswered command."""
    return set(_WITH_OFFERS.rows(now=now))


_WITH_OFFERS = Prepared(lambda now: _offered(now).order_by().values_list("node_id", flat=True), now=datetime)


def latest_results(names: Collection[str], *, limit: int) -> list[tuple[str, str, str, str, float | None, str, str]]:
    """Returns the latest results of these checks on existing nodes, failures first; one query.

    The columns are cluster, node, check, status, value, device and the model of the device or of the node's GPUs.
    Results older than ``health.AUTOPILOT_RESULT_VALID_FOR`` are left out, except those of checks that need idle GPUs.
    """
    marks, kept = (", ".join(["%s"] * len(checks)) for checks in (names, health.CHECKS_VALID_UNTIL_RERUN))
    hours = int(health.AUTOPILOT_RESULT_VALID_FOR.total_seconds()) // 3600
    since = f"agent.seen_at - interval '{hours} hours'"
    if connection.vendor == "sqlite":
        since = f"strftime('%%Y-%%m-%%d %%H:%%M:%%f', agent.seen_at, '-{hours} hours')"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT cluster.name, node.name, result.name, result.status, result.value, result.device,
                coalesce(gpu.model, node.model)
            FROM fleet_checkresult result
            JOIN fleet_node node ON node.id = result.node_id
            JOIN fleet_cluster cluster ON cluster.id = node.cluster_id
            LEFT JOIN fleet_agent agent ON agent.node_id = result.node_id
            LEFT JOIN fleet_gpu gpu ON gpu.node_id = result.node_id AND gpu.uuid = result.device
            WHERE node.in_cluster AND result.name IN ({marks}) AND result.status IN ('pass', 'warn', 'fail')
                AND (agent.seen_at IS NULL OR result.name IN ({kept}) OR result.seen_at >= {since})
            ORDER BY CASE result.status WHEN 'fail' THEN 0 WHEN 'warn' THEN 1 ELSE 2 END, result.id
            LIMIT %s""",  # nosec B608
            [*names, *health.CHECKS_VALID_UNTIL_RERUN, limit],
        )
        return list(cursor.fetchall())
