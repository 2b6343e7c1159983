"""Ingestion of agents' reports: one entry point for all of them, any number of reports per transaction.

A batch of reports takes one query that locks the agents' rows, one statement for the heartbeats and one query for
commands. Faults add one statement for their batch ids, and a few statements per fault, however many lines report it.
Changed inventories and check results add a few more.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction

from kcover import wire
from kcover_portal import doorbell
from kcover_portal.fleet import queries as fleet_queries
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import CheckChange, Cluster, Node
from kcover_portal.fleet.services import agent_reports, bulk_sql
from kcover_portal.incidents.models import Batch, Occurrence, Incident, JobSeen
from kcover_portal.incidents.services import record_faults
from kcover_portal.ledger import services as ledger

JOB_RETENTION = timedelta(days=30)  # as long as a storm's window may be
BATCH_RETENTION = timedelta(days=7)  # longer than any agent's spool is old
PRUNE_BATCH = 5_000  # rows per DELETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One decoded report, with the cluster and the node that its credential speaks for.

    With a ``body`` it repeats its node's previous report, and ``digest`` is that report's (``IncomingReport``).
    """

    cluster: Cluster
    node: str
    decoded: wire.Decoded
    digest: agent_reports.ReportDigest | None = None
    body: bytes = b""

    def incoming(self) -> agent_reports.IncomingReport:
        """The report as the fleet stores it."""
        report = self.decoded.report
        digest = self.digest or agent_reports.digest_of(report)
        return agent_reports.IncomingReport(self.cluster, report, digest, self.body)


def ingest(deliveries: Sequence[Delivery], *, now: datetime) -> list[wire.Answer]:
    """Stores reports in one transaction; returns an answer to each, in their order.

    When this returns, everything accepted is durable. A repeated batch changes nothing (invariant 2). Batches with
    faults are recognized for BATCH_RETENTION, of the others the last ``agent_reports.REMEMBERED_BATCHES`` per node.
    """
    answers: dict[int, wire.Answer] = {}
    with transaction.atomic(), ledger.last():
        for part in _rounds(deliveries):
            kept = _keep([deliveries[index] for index in part], now=now)
            answers.update(zip(part, kept, strict=True))
    return [answers[index] for index in range(len(deliveries))]


def _rounds(deliveries: Sequence[Delivery]) -> list[list[int]]:
    """The indexes of the deliveries in the fewest rounds with each node at most once; mostly one round."""
    rounds: list[list[int]] = []
    seen: dict[tuple[int, str], int] = {}
    for index, delivery in enumerate(deliveries):
        number = seen.get((delivery.cluster.pk, delivery.node), 0)
        seen[delivery.cluster.pk, delivery.node] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(index)
    return rounds


def _keep(deliveries: Sequence[Delivery], *, now: datetime) -> list[wire.Answer]:
    """Stores at most one report of each node."""
    agents = agent_reports.lock_agents([delivery.incoming() for delivery in deliveries], now=now)
    repeated = {one.node for one in agents if one.is_repeated} | _repeated(agents, now=now)
    agent_reports.record(agents, repeated=repeated, now=now)
    acting = [one.node for one in agents if one.report.command_results or one.report.faults]
    nodes = Node.objects.select_related("cluster").in_bulk(acting) if acting else {}
    duplicates = []
    for one in agents:
        items = len(one.report.faults) + one.digest.results
        node = nodes.get(one.node)
        if node is None:
            duplicates.append(items if one.node in repeated else 0)
            continue
        for result in one.report.command_results:
            if fleet.settle_command(node, result, now=now):
                doorbell.ring("rescue.nudge", node.pk)
        if one.node in repeated:
            duplicates.append(items)
        else:
            report = one.report
            duplicates.append(record_faults.keep_faults(node, report.faults, boot_id=report.boot_id, now=now))
    waiting = agent_reports.nodes_with_commands([one.node for one in agents], now=now)
    commands = fleet_queries.commands_on_offer(waiting, now=now) if waiting else {}
    return [
        wire.Answer(
            accepted=len(one.report.faults) + one.digest.results - twice,
            duplicates=twice,
            rejected=delivery.decoded.rejected,
            commands=tuple(commands.get(one.node, ())),
        )
        for one, delivery, twice in zip(agents, deliveries, duplicates, strict=True)
    ]


def _repeated(agents: Collection[agent_reports.KnownAgent], *, now: datetime) -> set[int]:
    """Stores the ids of batches with faults; returns the nodes whose batch was stored before."""
    batches = {one.node: one.report.batch_id for one in agents if one.report.faults}
    if not batches:
        return set()
    field = Batch._meta.get_field("batch_id")
    given = [
        {"node": node, "batch_id": str(field.get_db_prep_save(batch_id, connection))}
        for node, batch_id in sorted(batches.items())
    ]
    fresh = bulk_sql.run(
        f"""INSERT INTO incidents_batch (node_id, batch_id, at)
            SELECT node, batch_id, %s FROM {bulk_sql.given(node="bigint", batch_id="uuid")} WHERE true
            ON CONFLICT DO NOTHING RETURNING node_id""",
        [bulk_sql.moment(now), bulk_sql.rows(given)],
    )
    return set(batches) - {node for (node,) in fresh}


def prune(*, now: datetime) -> int:
    """Deletes expired rows; returns how many.

    Expired are batch ids that no agent can send again, occurrences of incidents closed KCOVER_KEEP_DAYS ago, and older
    changes of checks. Incidents and the audit log stay.
    """
    before = now - timedelta(days=settings.KCOVER_KEEP_DAYS)
    removed, _ = Batch.objects.filter(at__lt=now - BATCH_RETENTION).delete()
    removed += JobSeen.objects.filter(at__lt=now - JOB_RETENTION).delete()[0]
    past = Occurrence.objects.filter(
        incident__state=Incident.State.CLOSED, incident__closed_at__lt=before, at__lt=before
    ).order_by()
    while some := list(past.values_list("pk", flat=True)[:PRUNE_BATCH]):
        removed += Occurrence.objects.filter(pk__in=some).delete()[0]
    return removed + CheckChange.objects.filter(at__lt=before).delete()[0]
