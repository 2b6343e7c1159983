"""Stores what agents report about themselves and their nodes, many reports at once.

A heartbeat updates one narrow row and inserts none. The inventory and the check results are written only if they differ
from the previous report's, as digests in that row show. The time of an unchanged check result is updated every
REFRESH_SECONDS and with each boot. Everything here runs in the transaction of the whole batch.
"""

import hashlib
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from kcover import wire
from kcover.faults import fault
from kcover.nodes.gpu_figures import NO_FIGURES, Figures
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.fleet.services import bulk_sql, gpu_samples, latest_checks, node_inventories
from kcover_portal.lib import doorbell

REFRESH_SECONDS = 3600  # the shown time of a result may lag by this much
BATCH_MARK_CHARS = 12  # of the hash of a batch id
REMEMBERED_BATCHES = 8  # per node, without a row of their own: an agent sends one batch after the other
RECENT_CHARS = BATCH_MARK_CHARS * REMEMBERED_BATCHES
CHECKS_DIGEST_BYTES = 6  # in the row a number of boot and refresh period follows
# hashlib releases the GIL for inputs of 2,048 bytes and more, and taking it again costs more than the hashing.
_HASHED_BYTES = 2000
_INVENTORY = msgspec.json.Decoder(fault.Inventory)
_CHECKS = msgspec.json.Decoder(tuple[fault.Check, ...])
_SHOWN = frozenset(("boot_id", "version", "inventory_digest"))  # changes that open pages show


class IncomingReport(NamedTuple):
    """A report on its way from the endpoint to the database: who sent it, when it was received, its decoded content.

    The inventory and the check results are JSON as ``wire.encode`` defines it, without whitespace, b"" if there are
    none: most of them repeat the previous report, which their digests show, and are never needed as values.
    ``rejected``: the items that were left out. The other fields are those of ``wire.Report``.
    """

    cluster: Cluster
    node: str
    received_at: datetime
    boot_id: str
    batch_id: str
    sent_at: datetime
    agent: str
    inventory: bytes
    inventory_digest: str
    checks: bytes
    checks_digest: str
    check_count: int
    faults: tuple[fault.Fault, ...] = ()
    command_results: tuple[fault.CommandResult, ...] = ()
    rejected: tuple[wire.Rejected, ...] = ()
    figures: Figures = NO_FIGURES

    @classmethod
    def of(
        cls, cluster: Cluster, report: wire.Report, *, received_at: datetime, rejected: tuple[wire.Rejected, ...] = ()
    ) -> "IncomingReport":
        """A report that is already decoded."""
        inventory, checks = b"", b""
        if report.inventory is not None or report.checks:
            parts = wire.encode(replace(report, faults=(), command_results=()))
            inventory = msgspec.json.encode(parts["inventory"]) if report.inventory is not None else b""
            checks = msgspec.json.encode(parts["checks"]) if report.checks else b""
        return cls(
            cluster=cluster,
            node=report.node,
            received_at=received_at,
            boot_id=report.boot_id,
            batch_id=report.batch_id,
            sent_at=report.sent_at,
            agent=report.agent,
            inventory=inventory,
            inventory_digest=digest_of(inventory),
            checks=checks,
            checks_digest=digest_of(checks, size=CHECKS_DIGEST_BYTES),
            check_count=len(report.checks),
            faults=report.faults,
            command_results=report.command_results,
            rejected=rejected,
            figures=report.figures,
        )


def digest_of(part: bytes, *, size: int = 8) -> str:
    """The digest of the JSON of an inventory or of check results, "" if there are none. ``size``: in bytes."""
    if not part:
        return ""
    digest = hashlib.blake2b(part[:_HASHED_BYTES], digest_size=size)
    for start in range(_HASHED_BYTES, len(part), _HASHED_BYTES):
        digest.update(part[start : start + _HASHED_BYTES])
    return digest.hexdigest()


class AgentRow(NamedTuple):
    """The row of an agent before its report is stored; it is locked. ``node``: the node's key."""

    node: int
    boot_id: str
    version: str
    recent: str
    inventory_digest: str
    checks_digest: str


def lock_agents(reports: Sequence[IncomingReport], *, now: datetime) -> list[AgentRow]:
    """The rows of the reports' agents, in the same order; one query. Each report is of another node.

    Rows are locked in the order of the nodes, to avoid deadlocks between writers. A node that the cluster does not list
    gets a row with ``in_cluster`` false.
    """
    known = _known(reports)
    missing = [incoming for incoming in reports if _key(incoming) not in known]
    if missing:
        _create_rows(missing, now=now)
        known |= _known(missing)
    return [known[_key(incoming)] for incoming in reports]


def is_repeated(incoming: IncomingReport, agent: AgentRow) -> bool:
    """Returns whether the batch is one of the node's last ones. Batches with faults have rows of their own instead."""
    return not incoming.faults and _mark(incoming.batch_id) in agent.recent


def record(
    reports: Sequence[IncomingReport], agents: Sequence[AgentRow], *, repeated: Collection[int], now: datetime
) -> None:
    """Stores the heartbeats, and what changed since the previous reports.

    ``agents``: the rows of ``lock_agents``. ``repeated``: keys of nodes whose report was stored before. One statement,
    and a few more if anything changed.
    """
    seconds = now.timestamp()
    changes: list[dict[str, Any]] = []
    inventories: dict[int, fault.Inventory] = {}
    checks: dict[int, Sequence[fault.Check]] = {}
    figures: dict[int, Figures] = {}
    for incoming, agent in zip(reports, agents, strict=True):
        fresh = agent.node not in repeated
        change = _change(incoming, agent, fresh=fresh)
        if fresh:
            if incoming.inventory and incoming.inventory_digest != agent.inventory_digest:
                change["inventory_digest"] = incoming.inventory_digest
                inventories[agent.node] = _INVENTORY.decode(incoming.inventory)
            if incoming.checks and (mark := _checks_mark(incoming, agent.node, seconds)) != agent.checks_digest:
                change["checks_digest"] = mark
                checks[agent.node] = _CHECKS.decode(incoming.checks)
            if incoming.figures:
                figures[agent.node] = incoming.figures
        changes.append(change)
    _write(changes, now=now)
    node_inventories.keep(inventories, now=now)
    gpu_samples.keep(figures, now=now)
    moved = latest_checks.keep(checks, now=now)
    for incoming, change in zip(reports, changes, strict=True):
        if _SHOWN & change.keys() or change["node"] in moved:
            doorbell.publish("node", change["node"], cluster=incoming.cluster.name)


def nodes_with_commands(nodes: Collection[int], *, now: datetime) -> set[int]:
    """Those of the nodes (by key) with a command on offer."""
    found = bulk_sql.run(
        f"""SELECT DISTINCT node_id FROM fleet_command WHERE state = 'offered' AND expires_at > %s
            AND node_id IN (SELECT node FROM {bulk_sql.given(node="bigint")})""",  # nosec B608
        [bulk_sql.moment(now), bulk_sql.rows([{"node": node} for node in nodes])],
    )
    return {node for (node,) in found}


def _write(changes: Sequence[Mapping[str, Any]], *, now: datetime) -> None:
    """Writes the heartbeats; columns that a change leaves out keep their values."""
    text = dict.fromkeys(("boot_id", "version", "mark", "inventory_digest", "checks_digest"), "text")
    at = bulk_sql.moment(now)
    bulk_sql.run(
        f"""UPDATE fleet_agent SET seen_at = %s, skew = given.skew,
                boot_id = coalesce(given.boot_id, fleet_agent.boot_id),
                boot_seen_at = CASE WHEN given.boot_id IS NULL THEN fleet_agent.boot_seen_at ELSE %s END,
                version = coalesce(given.version, fleet_agent.version),
                recent = substr(coalesce(given.mark, '') || fleet_agent.recent, 1, {RECENT_CHARS}),
                inventory_digest = coalesce(given.inventory_digest, fleet_agent.inventory_digest),
                checks_digest = coalesce(given.checks_digest, fleet_agent.checks_digest)
            FROM {bulk_sql.given(node="bigint", skew="double precision", **text)}
            WHERE fleet_agent.node_id = given.node""",  # nosec B608
        [at, at, bulk_sql.rows(changes)],
    )


def _change(incoming: IncomingReport, agent: AgentRow, *, fresh: bool) -> dict[str, Any]:
    """The changes of the agent's row by any report."""
    skew = (incoming.sent_at - incoming.received_at).total_seconds()
    change: dict[str, Any] = {"node": agent.node, "skew": skew}
    if incoming.boot_id != agent.boot_id:
        change["boot_id"] = incoming.boot_id
    if (version := incoming.agent[:40]) != agent.version:
        change["version"] = version
    # Empty reports need no mark, and reports with faults have a row in incidents_batch.
    if fresh and not incoming.faults and (incoming.checks or incoming.inventory):
        change["mark"] = _mark(incoming.batch_id)
    return change


def _key(incoming: IncomingReport) -> tuple[int, str]:
    return incoming.cluster.pk, incoming.node


def _known(reports: Sequence[IncomingReport]) -> dict[tuple[int, str], AgentRow]:
    found = bulk_sql.run(
        f"""SELECT given.cluster, given.name, agent.node_id, agent.boot_id, agent.version, agent.recent,
                agent.inventory_digest, agent.checks_digest
            FROM {bulk_sql.given(cluster="bigint", name="text")}
            JOIN fleet_node node ON node.cluster_id = given.cluster AND node.name = given.name
            JOIN fleet_agent agent ON agent.node_id = node.id
            ORDER BY agent.node_id {bulk_sql.locked("agent")}""",  # nosec B608
        [bulk_sql.rows([{"cluster": cluster, "name": name} for cluster, name in map(_key, reports)])],
    )
    return {(cluster, name): AgentRow._make(columns) for cluster, name, *columns in found}


def _create_rows(reports: Sequence[IncomingReport], *, now: datetime) -> None:
    """Creates the rows of new agents, and of nodes that have none; rare."""
    for cluster in {incoming.cluster.pk: incoming.cluster for incoming in reports}.values():
        names = sorted(incoming.node for incoming in reports if incoming.cluster.pk == cluster.pk)
        nodes = Node.objects.filter(cluster=cluster, name__in=names)
        known = set(nodes.values_list("name", flat=True))
        fresh = [Node(cluster=cluster, name=name, created_at=now) for name in names if name not in known]
        Node.objects.bulk_create(fresh, ignore_conflicts=True)
        agents = [Agent(node_id=pk, seen_at=now, boot_seen_at=now) for pk in nodes.values_list("pk", flat=True)]
        Agent.objects.bulk_create(agents, ignore_conflicts=True)


def _mark(batch_id: str) -> str:
    return hashlib.blake2b(batch_id.encode(), digest_size=BATCH_MARK_CHARS // 2).hexdigest()


def _checks_mark(incoming: IncomingReport, node: int, seconds: float) -> str:
    """The digest of the results with a number for the boot and the refresh period; periods of nodes are staggered.

    Equal results of another boot are new: a validation asks whether the probes have looked since the boot.
    """
    period = int((seconds + node * 7 % REFRESH_SECONDS) // REFRESH_SECONDS)
    number = (period ^ zlib.crc32(incoming.boot_id.encode())) & 0xFFFF
    return f"{incoming.checks_digest}{number:04x}"
