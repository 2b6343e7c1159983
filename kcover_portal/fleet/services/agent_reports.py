"""Stores what agents report about themselves and their nodes, many reports at once.

A heartbeat updates one narrow row and inserts none. The inventory and the check results are written only if they differ
from the previous report's, which digests in that row tell. The time of an unchanged check result is updated every
REFRESH_SECONDS. Everything here runs in the transaction of the whole batch.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from kcover import wire
from kcover_portal import doorbell
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.fleet.services import bulk_sql, latest_checks, node_inventories

REFRESH_SECONDS = 3600  # the shown time of a result may lag by this much
BATCH_MARK_CHARS = 12  # of the hash of a batch id
REMEMBERED_BATCHES = 8  # per node, without a row of their own: an agent sends one batch after the other
RECENT_CHARS = BATCH_MARK_CHARS * REMEMBERED_BATCHES


@dataclass(frozen=True, slots=True)
class ReportDigest:
    """A report in short: digests of its inventory and of its check results ("": it has none), and their number."""

    inventory: str
    checks: str
    results: int


class IncomingReport(NamedTuple):
    """A report to be stored.

    With a ``body`` it repeats its node's previous report (``wire.fingerprint``). Then the digest is that report's, and
    only the body has the inventory and the results.
    """

    cluster: Cluster
    report: wire.Report
    digest: ReportDigest
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAgent:
    """A report, and the state of its agent's row before it; the row is locked."""

    report: wire.Report
    digest: ReportDigest
    body: bytes
    cluster: Cluster
    node: int
    boot_id: str
    version: str
    recent: str
    inventory_digest: str
    checks_digest: str

    def full_report(self) -> wire.Report:
        """The report with its inventory and its results; decodes the body if there is one."""
        return wire.decode(self.body).report if self.body else self.report

    @property
    def is_repeated(self) -> bool:
        """Whether the batch is one of the node's last ones. Batches with faults have rows of their own instead."""
        return not self.report.faults and _mark(self.report.batch_id) in self.recent


def digest_of(report: wire.Report) -> ReportDigest:
    """The digest of a decoded report."""
    inventory, results = "", ""
    if report.inventory is not None:
        gpus = [(gpu.index, gpu.uuid, gpu.pci, gpu.model, gpu.serial) for gpu in report.inventory.gpus]
        inventory = _digest([report.inventory.driver, report.inventory.kernel, gpus], size=8)
    if report.checks:
        of = [(one.name, one.device, one.status, one.value, one.unit, one.message) for one in report.checks]
        results = _digest(of, size=6)
    return ReportDigest(inventory, results, len(report.checks))


def lock_agents(reports: Sequence[IncomingReport], *, now: datetime) -> list[KnownAgent]:
    """The reports with the state of their agents, in the same order; one query. Each report is of another node.

    Rows are locked in the order of the nodes, to avoid deadlocks between writers. A node that the cluster does not list
    gets a row with ``in_cluster`` false.
    """
    known = _known(reports)
    missing = [one for one in reports if _key(one) not in known]
    if missing:
        _create_rows(missing, now=now)
        known |= _known(missing)
    return [
        KnownAgent(report=one.report, digest=one.digest, body=one.body, cluster=one.cluster, **known[_key(one)])
        for one in reports
    ]


def record(agents: Sequence[KnownAgent], *, repeated: Collection[int], now: datetime) -> None:
    """Stores the heartbeats, and what changed since the previous reports.

    ``repeated``: keys of nodes whose report was stored before. One statement, and a few more if anything changed.
    """
    seconds = now.timestamp()
    fresh = [one for one in agents if one.node not in repeated]
    inventories = {
        one.node: one.digest.inventory for one in fresh if one.digest.inventory not in ("", one.inventory_digest)
    }
    checks = {one.node: mark for one in fresh if (mark := _checks_mark(one, seconds)) != one.checks_digest}
    changed = {one.node: one.full_report() for one in fresh if one.node in inventories or one.node in checks}
    rows = [_row(one, repeated, inventories.get(one.node), checks.get(one.node), now=now) for one in agents]
    at = bulk_sql.moment(now)
    bulk_sql.run(
        f"""UPDATE fleet_agent SET seen_at = %s, skew = given.skew,
                boot_id = coalesce(given.boot_id, fleet_agent.boot_id),
                boot_seen_at = CASE WHEN given.boot_id IS NULL THEN fleet_agent.boot_seen_at ELSE %s END,
                version = coalesce(given.version, fleet_agent.version),
                recent = substr(coalesce(given.mark, '') || fleet_agent.recent, 1, {RECENT_CHARS}),
                inventory_digest = coalesce(given.inventory_digest, fleet_agent.inventory_digest),
                checks_digest = coalesce(given.checks_digest, fleet_agent.checks_digest)
            FROM {_noted()} WHERE fleet_agent.node_id = given.node""",
        [at, at, bulk_sql.rows(rows)],
    )
    node_inventories.keep(
        {node: inventory for node in inventories if (inventory := changed[node].inventory) is not None}, now=now
    )
    moved = latest_checks.keep({node: changed[node].checks for node in checks}, now=now)
    for one, row in zip(agents, rows, strict=True):
        if "boot_id" in row or "version" in row or one.node in inventories or one.node in moved:
            doorbell.tell("node", one.node, cluster=one.cluster.name)


def nodes_with_commands(nodes: Collection[int], *, now: datetime) -> set[int]:
    """Those of the nodes (by key) with a command on offer."""
    found = bulk_sql.run(
        f"""SELECT DISTINCT node_id FROM fleet_command WHERE state = 'offered' AND expires_at > %s
            AND node_id IN (SELECT node FROM {bulk_sql.given(node="bigint")})""",
        [bulk_sql.moment(now), bulk_sql.rows([{"node": node} for node in nodes])],
    )
    return {node for (node,) in found}


def _noted() -> str:
    text = dict.fromkeys(("boot_id", "version", "mark", "inventory_digest", "checks_digest"), "text")
    return bulk_sql.given(node="bigint", skew="double precision", **text)


def _row(
    one: KnownAgent,
    repeated: Collection[int],
    inventory_digest: str | None,
    checks_digest: str | None,
    *,
    now: datetime,
) -> dict[str, Any]:
    """The changes of the agent's row; columns that are left out keep their values."""
    report = one.report
    row: dict[str, Any] = {"node": one.node, "skew": (report.sent_at - now).total_seconds()}
    if report.boot_id != one.boot_id:
        row["boot_id"] = report.boot_id
    if (version := report.agent[:40]) != one.version:
        row["version"] = version
    # Empty reports need no mark, and reports with faults have a row in incidents_batch.
    if one.node not in repeated and not report.faults and (one.digest.results or one.digest.inventory):
        row["mark"] = _mark(report.batch_id)
    if inventory_digest is not None:
        row["inventory_digest"] = inventory_digest
    if checks_digest is not None:
        row["checks_digest"] = checks_digest
    return row


def _key(one: IncomingReport) -> tuple[int, str]:
    return one.cluster.pk, one.report.node


def _known(reports: Sequence[IncomingReport]) -> dict[tuple[int, str], dict[str, Any]]:
    columns = ("node", "boot_id", "version", "recent", "inventory_digest", "checks_digest")
    found = bulk_sql.run(
        f"""SELECT given.cluster, given.name, agent.node_id, agent.boot_id, agent.version, agent.recent,
                agent.inventory_digest, agent.checks_digest
            FROM {bulk_sql.given(cluster="bigint", name="text")}
            JOIN fleet_node node ON node.cluster_id = given.cluster AND node.name = given.name
            JOIN fleet_agent agent ON agent.node_id = node.id
            ORDER BY agent.node_id {bulk_sql.locked("agent")}""",
        [bulk_sql.rows([{"cluster": one.cluster.pk, "name": one.report.node} for one in reports])],
    )
    return {(cluster, name): dict(zip(columns, rest, strict=True)) for cluster, name, *rest in found}


def _create_rows(reports: Sequence[IncomingReport], *, now: datetime) -> None:
    """Creates the rows of new agents, and of nodes that have none; rare."""
    for cluster in {one.cluster.pk: one.cluster for one in reports}.values():
        names = sorted(one.report.node for one in reports if one.cluster.pk == cluster.pk)
        nodes = Node.objects.filter(cluster=cluster, name__in=names)
        known = set(nodes.values_list("name", flat=True))
        fresh = [Node(cluster=cluster, name=name, created_at=now) for name in names if name not in known]
        Node.objects.bulk_create(fresh, ignore_conflicts=True)
        agents = [Agent(node_id=pk, seen_at=now, boot_seen_at=now) for pk in nodes.values_list("pk", flat=True)]
        Agent.objects.bulk_create(agents, ignore_conflicts=True)


def _mark(batch_id: str) -> str:
    return hashlib.blake2b(batch_id.encode(), digest_size=BATCH_MARK_CHARS // 2).hexdigest()


def _checks_mark(one: KnownAgent, seconds: float) -> str:
    """The digest of the results with the number of the refresh period; periods of nodes are staggered."""
    if not one.digest.checks:
        return one.checks_digest
    period = int((seconds + one.node * 7 % REFRESH_SECONDS) // REFRESH_SECONDS)
    return f"{one.digest.checks}{period & 0xFFFF:04x}"


def _digest(value: Any, *, size: int) -> str:
    return hashlib.blake2b(json.dumps(value, separators=(",", ":")).encode(), digest_size=size).hexdigest()
