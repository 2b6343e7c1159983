"""Ingestion of agents' reports: one entry point for all of them, any number of reports per transaction.

A batch of reports takes one query that locks the agents' rows, one statement for the heartbeats and one query for
commands. Faults add one statement for their batch ids, one for the number of open incidents, and a few statements per
fault, however many lines report it. The number of incidents of a node is bounded (``overflow``). Changed inventories
and check results add a few more.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from django.db import connection, transaction

from kcover import wire
from kcover_portal.fleet import queries as fleet_queries, services as fleet
from kcover_portal.fleet.models import CheckChange
from kcover_portal.fleet.services import agent_reports, bulk_sql
from kcover_portal.fleet.services.agent_reports import IncomingReport
from kcover_portal.incidents.models import Batch, Incident, JobSeen, Occurrence
from kcover_portal.incidents.services import agent_faults, overflow, record_faults, report_spans
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import retention


def ingest(reports: Sequence[IncomingReport], *, now: datetime) -> list[wire.Answer]:
    """Stores reports in one transaction; returns an answer to each, in their order.

    When this returns, everything accepted is durable. A repeated batch changes nothing (invariant 2). Batches with
    faults are recognized as long as their ids are kept (``retention``), of the others the last
    ``agent_reports.REMEMBERED_BATCHES`` per node.
    """
    answers: dict[int, wire.Answer] = {}
    with transaction.atomic(), ledger.last():
        for part in _rounds(reports):
            kept = _keep([reports[index] for index in part], now=now)
            answers.update(zip(part, kept, strict=True))
    return [answers[index] for index in range(len(reports))]


def _rounds(reports: Sequence[IncomingReport]) -> list[list[int]]:
    """The indexes of the reports in the fewest rounds with each node at most once; mostly one round."""
    rounds: list[list[int]] = []
    seen: dict[tuple[int, str], int] = {}
    for index, incoming in enumerate(reports):
        node = incoming.cluster.pk, incoming.node
        number = seen.get(node, 0)
        seen[node] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(index)
    return rounds


def _keep(reports: Sequence[IncomingReport], *, now: datetime) -> list[wire.Answer]:
    """Stores at most one report of each node."""
    agents = agent_reports.lock_agents(reports, now=now)
    nodes = [agent.node for agent in agents]
    repeated = {
        node
        for node, incoming, agent in zip(nodes, reports, agents, strict=True)
        if agent_reports.is_repeated(incoming, agent)
    }
    acting = {
        node: incoming
        for node, incoming in zip(nodes, reports, strict=True)
        if incoming.faults or incoming.command_results
    }
    repeated |= _repeated(acting, now=now)
    agent_reports.record(reports, agents, repeated=repeated, now=now)
    if acting:
        _act(acting, repeated=repeated, now=now)
    waiting = agent_reports.nodes_with_commands(nodes, now=now)
    commands = fleet_queries.commands_on_offer(waiting, now=now) if waiting else {}
    answers = []
    for node, incoming in zip(nodes, reports, strict=True):
        items = len(incoming.faults) + incoming.check_count
        duplicates = items if node in repeated else 0
        answers.append(
            wire.Answer(
                accepted=items - duplicates,
                duplicates=duplicates,
                rejected=incoming.rejected,
                commands=tuple(commands.get(node, ())),
            )
        )
    return answers


def _act(reports: Mapping[int, IncomingReport], *, repeated: Collection[int], now: datetime) -> None:
    """Stores faults and command results, by the node's key."""
    nodes = fleet_queries.nodes_of(reports)
    with_faults = [pk for pk, incoming in reports.items() if incoming.faults and pk not in repeated]
    open_now = overflow.open_by_kind(with_faults) if with_faults else {}
    for pk, incoming in sorted(reports.items()):  # incidents are locked in the order of their nodes
        node = nodes.get(pk)
        if node is None:
            continue
        for result in incoming.command_results:
            if fleet.settle_command(node, result, now=now):
                doorbell.ring("rescue.nudge", pk)
        if pk not in repeated:
            with report_spans.received(incoming.received_at):
                seen = agent_faults.timed(incoming)
                record_faults.keep_faults(node, seen, open_now=open_now.get(pk, {}), boot_id=incoming.boot_id, now=now)


def _repeated(reports: Mapping[int, IncomingReport], *, now: datetime) -> set[int]:
    """Stores the ids of batches with faults; returns the nodes whose batch was stored before."""
    batches = {node: incoming.batch_id for node, incoming in reports.items() if incoming.faults}
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
            ON CONFLICT DO NOTHING RETURNING node_id""",  # nosec B608
        [bulk_sql.moment(now), bulk_sql.rows(given)],
    )
    return set(batches) - {node for (node,) in fresh}


def prune(*, now: datetime) -> int:
    """Deletes old batch ids, jobs, changes of checks, and occurrences of closed incidents; returns how many.

    Incidents and the audit log stay.
    """
    models: tuple[type[Batch | JobSeen | CheckChange], ...] = (Batch, JobSeen, CheckChange)
    removed = sum(model.objects.filter(at__lt=retention.before(model, now=now)).delete()[0] for model in models)
    before = retention.before(Occurrence, now=now)
    closed = {"incident__state": Incident.State.CLOSED, "incident__closed_at__lt": before}
    return removed + retention.delete(Occurrence.objects.filter(**closed, at__lt=before))
