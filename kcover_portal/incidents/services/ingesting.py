"""Taking reports in: one door for every agent, any number of reports in one transaction.

For a batch: one query that finds and locks the agents' rows, one statement that notes the heartbeats, one that looks
for commands; one more where there are faults (their batches), a few where an inventory or a check says something new,
and then the faults, which are rare: a few statements for each of them, however many lines tell of it.
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
from kcover_portal.fleet.services import hearing, statements
from kcover_portal.incidents.models import Batch, Event, Incident, JobSeen
from kcover_portal.incidents.services import keeping
from kcover_portal.ledger import services as ledger

JOBS_KEPT = timedelta(days=30)  # as long as a storm's window may be
BATCHES_KEPT = timedelta(days=7)  # longer than any agent's spool is old
AT_ONE_TIME = 5_000  # rows that are removed in one statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One decoded report, with the cluster and the node that its credential speaks for.

    With a ``body`` it says what its node's last report said, and ``told`` is what that told (``hearing.Said``).
    """

    cluster: Cluster
    node: str
    decoded: wire.Decoded
    told: hearing.Told | None = None
    body: bytes = b""

    def said(self) -> hearing.Said:
        """The report for the fleet's ears."""
        report = self.decoded.report
        return hearing.Said(self.cluster, report, self.told or hearing.told(report), self.body)


def ingest(deliveries: Sequence[Delivery], *, now: datetime) -> list[wire.Answer]:
    """Keeps several reports in one transaction and says, in their order, what became of each.

    When this returns, everything accepted is durable. A resent batch changes nothing (invariant 2): those with faults
    are known for BATCHES_KEPT, of the others the last ``hearing.MARKS`` of each node.
    """
    answers: dict[int, wire.Answer] = {}
    with transaction.atomic(), ledger.last():
        for part in _rounds(deliveries):
            kept = _keep([deliveries[index] for index in part], now=now)
            answers.update(zip(part, kept, strict=True))
    return [answers[index] for index in range(len(deliveries))]


def _rounds(deliveries: Sequence[Delivery]) -> list[list[int]]:
    """The places of the deliveries, in as few rounds as have each node at most once; mostly one."""
    rounds: list[list[int]] = []
    told: dict[tuple[int, str], int] = {}
    for index, delivery in enumerate(deliveries):
        turn = told.get((delivery.cluster.pk, delivery.node), 0)
        told[delivery.cluster.pk, delivery.node] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(index)
    return rounds


def _keep(deliveries: Sequence[Delivery], *, now: datetime) -> list[wire.Answer]:
    """One report of each of several nodes."""
    heard = hearing.hear([delivery.said() for delivery in deliveries], now=now)
    repeated = {one.node for one in heard if one.again} | _repeated(heard, now=now)
    hearing.note(heard, repeated=repeated, now=now)
    acting = [one.node for one in heard if one.report.command_results or one.report.faults]
    nodes = Node.objects.select_related("cluster").in_bulk(acting) if acting else {}
    duplicates = []
    for one in heard:
        items = len(one.report.faults) + one.told.results
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
            duplicates.append(keeping.keep_faults(node, report.faults, boot_id=report.boot_id, now=now))
    asked = hearing.asked([one.node for one in heard], now=now)
    commands = fleet_queries.commands_on_offer(asked, now=now) if asked else {}
    return [
        wire.Answer(
            accepted=len(one.report.faults) + one.told.results - twice,
            duplicates=twice,
            rejected=delivery.decoded.rejected,
            commands=tuple(commands.get(one.node, ())),
        )
        for one, delivery, twice in zip(heard, deliveries, duplicates, strict=True)
    ]


def _repeated(heard: Collection[hearing.Heard], *, now: datetime) -> set[int]:
    """Notes the batches with faults; the nodes whose batch was noted before."""
    telling = {one.node: one.report.batch_id for one in heard if one.report.faults}
    if not telling:
        return set()
    field = Batch._meta.get_field("batch_id")
    given = [
        {"node": node, "batch_id": str(field.get_db_prep_save(batch_id, connection))}
        for node, batch_id in sorted(telling.items())
    ]
    fresh = statements.run(
        f"""INSERT INTO incidents_batch (node_id, batch_id, at)
            SELECT node, batch_id, %s FROM {statements.given(node="bigint", batch_id="uuid")} WHERE true
            ON CONFLICT DO NOTHING RETURNING node_id""",
        [statements.moment(now), statements.rows(given)],
    )
    return set(telling) - {node for (node,) in fresh}


def prune(*, now: datetime) -> int:
    """Forgets what is past its time: batch ids that no agent can send again, and the sightings of incidents that were
    closed KCOVER_KEEP_DAYS ago, the moves of checks from before. Incidents and the ledger stay. Returns how many rows.
    """
    before = now - timedelta(days=settings.KCOVER_KEEP_DAYS)
    removed, _ = Batch.objects.filter(at__lt=now - BATCHES_KEPT).delete()
    removed += JobSeen.objects.filter(at__lt=now - JOBS_KEPT).delete()[0]
    past = Event.objects.filter(
        incident__state=Incident.State.CLOSED, incident__closed_at__lt=before, at__lt=before
    ).order_by()
    while some := list(past.values_list("pk", flat=True)[:AT_ONE_TIME]):
        removed += Event.objects.filter(pk__in=some).delete()[0]
    return removed + CheckChange.objects.filter(at__lt=before).delete()[0]
