"""Disables the ledger's triggers in the database: for tests that play the forger, and for the flush between tests.

Only whoever owns the tables can do this; it is the migration's own way back, so production has no switch for it.
"""

import contextlib
import importlib
from collections.abc import Iterator

from django.core.management.commands import flush
from django.db import connection

FILLED_BY_MIGRATIONS = ("django_migrations", "django_content_type", "auth_permission")

append_only = importlib.import_module("kcover_portal.ledger.migrations.0002_append_only")
function_paths = importlib.import_module("kcover_portal.ledger.migrations.0004_function_paths")


@contextlib.contextmanager
def unguarded() -> Iterator[None]:
    """Within, rows of the ledger can be changed and removed."""
    _execute(append_only.UNGUARD)
    try:
        yield
    finally:
        _execute(append_only.GUARD)
        _execute(function_paths.FIX)


@contextlib.contextmanager
def flush_empties_the_ledger() -> Iterator[None]:
    """Within, Django's flush (after each test with real transactions) empties the guarded tables too.

    On PostgreSQL it empties only tables that have rows, and keeps those that migrations fill: to truncate a hundred
    tables and to fill these again takes longer than most tests.
    """
    handle = flush.Command.handle

    def unguarded_handle(self: flush.Command, **options: object) -> None:
        with unguarded():
            if connection.vendor == "postgresql":
                _truncate_tables_with_rows()
            else:
                handle(self, **options)

    flush.Command.handle = unguarded_handle
    try:
        yield
    finally:
        flush.Command.handle = handle


def _truncate_tables_with_rows() -> None:
    names = set(connection.introspection.django_table_names(only_existing=True)) - set(FILLED_BY_MIGRATIONS)
    looks = [f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM \"{name}\")" for name in sorted(names)]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(looks))
        if found := [f'"{name}"' for (name,) in cursor.fetchall()]:
            cursor.execute(f"TRUNCATE {', '.join(found)} CASCADE")


def _execute(statements: dict[str, tuple[str, ...]]) -> None:
    with connection.cursor() as cursor:
        for statement in statements[connection.vendor]:
            cursor.execute(statement)
