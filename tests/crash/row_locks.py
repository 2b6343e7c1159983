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
Connection = psycopg.Connection[Any]


def before(product: Installation, node: str, point: Point) -> Connection | None:
    """Whoever inserts the same key waits until this one is committed or taken back. None: the row exists already."""
    _, index, rescue, node_id = _step(product, node, point)
    lock = product.connect()
    lock.execute("BEGIN")
    try:
        lock.execute(_VALIDATION if point.row == "validate" else _COMMAND, (f"{point.row}-{rescue}-{index}-0", node_id))
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
