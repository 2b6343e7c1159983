"""Keeps the figures of GPUs over time: copies them from the latest check results, many nodes in one statement.

The ingest of reports has no part in this. Results that arrived in a quarter of an hour become the sample of that
quarter, in a row that is reused after three days. Agents repeat a result once an hour, and at once when its status
changes, so most quarters of a GPU have no sample.
"""

from datetime import datetime
from typing import Final

from django.db import connection, transaction
from django.db.models import Max

from kcover.nodes.gpu_figures import FIGURES, QUARTER, quarter_before, slot
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import bulk_sql

NODES_A_STATEMENT: Final = 2_000


def take(*, now: datetime) -> None:
    """Keeps the samples of the last quarter of an hour that is over; to repeat it changes nothing.

    One statement for each NODES_A_STATEMENT keys of nodes, in a transaction of its own, and one before them.
    """
    since = quarter_before(now)
    last = Node.objects.aggregate(last=Max("pk"))["last"] or 0
    for first in range(0, last, NODES_A_STATEMENT):
        with transaction.atomic():
            _take(first, first + NODES_A_STATEMENT, since=since)


def _take(after: int, until: int, *, since: datetime) -> None:
    """Keeps the samples of the nodes with keys in (``after``, ``until``]. Only GPUs of the inventory count."""
    named = ", ".join("%s" for _name in FIGURES)
    of_gpu, of_node = _objects()
    bulk_sql.run(
        f"""INSERT INTO fleet_gpusample (node_id, slot, at, figures)
            SELECT node_id, %s, %s, {of_node} FROM (
                SELECT result.node_id, result.device, {of_gpu} AS figures
                FROM fleet_checkresult result
                JOIN fleet_gpu gpu ON gpu.node_id = result.node_id AND gpu.uuid = result.device
                WHERE result.node_id > %s AND result.node_id <= %s AND result.name IN ({named})
                    AND result.value IS NOT NULL AND result.seen_at >= %s AND result.seen_at < %s
                GROUP BY result.node_id, result.device) AS of_gpu
            GROUP BY node_id
            ON CONFLICT (node_id, slot) DO UPDATE SET at = excluded.at, figures = excluded.figures""",  # nosec B608
        [
            *(slot(since), bulk_sql.moment(since)),
            *(after, until, *FIGURES),
            *(bulk_sql.moment(since), bulk_sql.moment(since + QUARTER)),
        ],
    )


def _objects() -> tuple[str, str]:
    """The SQL that makes an object of a GPU's values, and of a node's GPUs."""
    if connection.vendor == "postgresql":
        return "jsonb_object_agg(result.name, result.value)", "jsonb_object_agg(device, figures)"
    return "json_group_object(result.name, result.value)", "json_group_object(device, json(figures))"
