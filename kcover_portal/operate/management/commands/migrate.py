"""``manage.py migrate``: Django's own, one at a time, however many processes of a new version start at once."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.commands import migrate
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error as DatabaseError

LOCK = 0x6B636F766572  # "kcover"; PostgreSQL knows such locks by a number, in each database its own
LOOK_SECONDS = 0.5


class Command(migrate.Command):
    """Django's, which would let two that begin together create the same table."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrates once whoever migrates already is done. SQLite, which one process uses, has no such lock."""
        connection = connections[options["database"]]
        if connection.vendor == "postgresql":
            with _alone(connection, waiting=lambda: self.stderr.write("migrate: another process does; waiting for it")):
                super().handle(*args, **options)
        else:
            super().handle(*args, **options)


@contextlib.contextmanager
def _alone(connection: BaseDatabaseWrapper, *, waiting: Callable[[], object]) -> Iterator[None]:
    """Holds the lock of the session that migrates: if that ends in the middle, so does the lock."""
    # Asked for again and again, as who waits inside a statement would be waited for by CREATE INDEX CONCURRENTLY.
    if not _taken(connection):
        waiting()
        while not _taken(connection):
            time.sleep(LOOK_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK])


def _taken(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [LOCK])
        return bool(cursor.fetchone()[0])
