"""Locks between the sessions of PostgreSQL."""

from django.db import connection


def another_session_waits() -> bool:
    """Returns whether another session waits for a lock of this one."""
    with connection.cursor() as cursor:
        blocking = "pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        cursor.execute(f"SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND {blocking})")
        return bool(cursor.fetchone()[0])
