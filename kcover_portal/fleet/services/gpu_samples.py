"""Keeps the figures that agents report about GPUs: a row for each quarter of an hour, reused after three days.

An agent sends the figures with one heartbeat in a quarter of an hour.
"""

from collections.abc import Mapping
from datetime import datetime

from kcover.nodes.gpu_figures import FIGURES, Figures, quarter_of, slot
from kcover_portal.fleet.services import bulk_sql


def keep(figures: Mapping[int, Figures], *, now: datetime) -> None:
    """Keeps the figures of nodes (by key) by GPU (UUID) and name, the first of each quarter.

    Others of the quarter change nothing, so that an agent that sends them with each heartbeat writes as little. One
    statement, if there are any. Names that this version does not know are left out.
    """
    given = [
        {"node": node, "figures": found}
        for node, gpus in sorted(figures.items())
        if (found := {gpu: known for gpu, values in gpus.items() if (known := _known(values))})
    ]
    if not given:
        return
    quarter = quarter_of(now)
    bulk_sql.run(
        f"""INSERT INTO fleet_gpusample (node_id, slot, at, figures)
            SELECT node, %s, %s, figures FROM {bulk_sql.given(node="bigint", figures="jsonb")} WHERE true
            ON CONFLICT (node_id, slot) DO UPDATE SET at = excluded.at, figures = excluded.figures
            WHERE fleet_gpusample.at <> excluded.at""",  # nosec B608
        [slot(quarter), bulk_sql.moment(quarter), bulk_sql.rows(given)],
    )


def _known(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name in FIGURES}
