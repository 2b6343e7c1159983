"""Writes the check results of many nodes at once: the latest of each check, and a row for each change of a status."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from kcover.faults import fault
from kcover_portal.fleet.services import bulk_sql, stored_checks

NO_NEWS = ("pass", "skipped")  # first results that are not recorded as a change


def keep(of: Mapping[int, Sequence[fault.Check]], *, now: datetime) -> set[int]:
    """Stores the latest result of each check, and a row per changed status; returns the nodes with a change."""
    latest = {(node, check.name, check.device): check for node, checks in of.items() for check in checks}
    if not latest:
        return set()
    results = bulk_sql.rows(
        [
            {
                "node": node,
                "name": name,
                "device": device,
                "status": check.status,
                "value": check.value,
                "unit": check.unit,
                "message": check.message[:1000],
            }
            for (node, name, device), check in sorted(latest.items(), key=lambda item: item[0])
        ]
    )
    given = bulk_sql.given(
        node="bigint",
        name="text",
        device="text",
        status="text",
        value="double precision",
        unit="text",
        message="text",
    )
    at = bulk_sql.moment(now)
    changed = bulk_sql.run(
        f"""INSERT INTO fleet_checkchange (node_id, name, device, before, status, message, at)
            SELECT given.node, given.name, given.device, coalesce(kept.status, ''), given.status, given.message, %s
            FROM {given} LEFT JOIN fleet_checkresult kept
                ON kept.node_id = given.node AND kept.name = given.name AND kept.device = given.device
            WHERE coalesce(kept.status, '') <> given.status AND NOT (kept.status IS NULL AND given.status IN (%s, %s))
            RETURNING node_id""",  # nosec B608
        [at, results, *NO_NEWS],
    )
    bulk_sql.run(
        f"""INSERT INTO fleet_checkresult (node_id, name, device, status, value, unit, message, seen_at, changed_at)
            SELECT node, name, device, status, value, unit, message, %s, %s FROM {given} WHERE true
            ON CONFLICT (node_id, name, device) DO UPDATE SET status = excluded.status, value = excluded.value,
                unit = excluded.unit, message = excluded.message, seen_at = excluded.seen_at,
                changed_at = CASE WHEN fleet_checkresult.status = excluded.status
                    THEN fleet_checkresult.changed_at ELSE excluded.changed_at END""",  # nosec B608
        [at, at, results],
    )
    stored_checks.limit_results(sorted({node for node, _, _ in latest}))
    nodes = {node for (node,) in changed}
    stored_checks.limit_changes(nodes)
    return nodes
