"""Holds a worker at a call that is a row instead of a request, by a transaction that locks the row."""

from typing import Any

import psycopg

from tests.crash.installation import Installation
from tests.crash.points import Point

_COMMAND = (
    "INSERT INTO fleet_command"
    " (id, key, node_id, kind, args, state, message, because, output, requester_kind, created_at, expires_at)"
    " VALUES (gen_random_uuid(), %s, %s, 'none', '{}', 'offered', '', '{}', '{}', '', now(), now())"
)
_VALIDATION = (
    "INSERT INTO checks_validation"
    " (key, cluster_id, profile, document, reason, state, requested_by, requester_kind, requested_at)"
    " SELECT %s, cluster_id, 'light', '{}', '', 'waiting', 'nobody', 'rescue', now() FROM fleet_node WHERE id = %s"
)
# Of the GPU that the fault names.
_REPAIR = (
    "INSERT INTO repairs_repair"
    " (cluster_id, node_id, node_name, machine_serial, part_kind, part_serial, part_slot, removed_serial, vendor,"
    " queue, ticket, assignee, action, opened_because, opened_by, opened_role, state, reported_at)"
    " SELECT n.cluster_id, n.id, n.name, '', 'gpu', g.serial, g.index::text, '', '', '', '', '', '', '[]', '', '',"
    " 'reported', now() FROM fleet_node n JOIN fleet_gpu g ON g.node_id = n.id WHERE n.id = %s AND g.index = 0"
)
Connection = psycopg.Connection[Any]


def before(product: Installation, node: str, point: Point) -> Connection | None:
    """Makes each insert of the same key wait until this one is rolled back. Returns None if the row exists already."""
    _, index, rescue, node_id = _step(product, node, point)
    lock = product.connect()
    try:
        lock.execute("BEGIN")
        if point.row == "repair":
            lock.execute(_REPAIR, (node_id,))
        else:
            query = _VALIDATION if point.row == "validate" else _COMMAND
            lock.execute(query, (f"{point.row}-{rescue}-{index}-0", node_id))
    except psycopg.errors.UniqueViolation:
        lock.close()
        return None
    return lock


def after(product: Installation, node: str, point: Point) -> Connection:
    """Whoever writes the step waits."""
    lock = product.connect()
    lock.execute("BEGIN")
    lock.execute("SELECT 1 FROM rescue_step WHERE id = %s FOR UPDATE", (_step(product, node, point)[0],))
    return lock


def waited_for(product: Installation) -> frozenset[int]:
    """The backends that somebody waits for."""
    found = product.rows("SELECT DISTINCT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity WHERE state = 'active'")
    return frozenset(int(pid) for (pid,) in found)


def blocks(lock: Connection | None, waited: frozenset[int]) -> bool:
    """Returns whether another transaction waits for the lock. ``waited``: as ``waited_for`` found."""
    return lock is not None and lock.info.backend_pid in waited


def let_go(lock: Connection | None) -> None:
    """Takes back what it began, so that whoever waits goes on."""
    if lock is not None:
        lock.close()


def _step(product: Installation, node: str, point: Point) -> tuple[int, int, int, int]:
    """The ids of the step that writes the row, its place, its rescue and its node."""
    (found,) = product.rows(
        "SELECT s.id, s.index, r.id, n.id FROM rescue_step s JOIN rescue_rescue r ON r.id = s.rescue_id "
        "JOIN fleet_node n ON n.id = r.node_id WHERE n.name = %s AND s.name = %s",
        node,
        point.step,
    )
    return found[0], found[1], found[2], found[3]
