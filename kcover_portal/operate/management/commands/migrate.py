"""``manage.py migrate``: Django's command under a lock, because several processes may start at once."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.utils import Error as DatabaseError

from kcover_portal.operate import database_roles

ADVISORY_LOCK_KEY = 0x6B636F766572  # "kcover" as a number: the key of a PostgreSQL advisory lock, per database
POLL_SECONDS = 0.5
LOCK_TIMEOUT_SECONDS = 600.0  # then the process exits and its supervisor restarts it

HOLDER = """
    SELECT pid, coalesce(host(client_addr), 'its own machine')
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) + objid::bigint = %s AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class Command(migrate.Command):
    """Django's command, limited to one process at a time."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Waits for a running migration, then migrates. SQLite needs no lock, because only one process uses it.

        Raises CommandError for a database with other migrations.
        """
        connection = connections[options["database"]]
        _check_history(connection)
        if connection.vendor == "postgresql":
            with _alone(connection, say=self.stderr.write):
                super().handle(*args, **options)
                if not options["plan"] and not options["check_unapplied"]:
                    _grant(connection)
        else:
            super().handle(*args, **options)


def _check_history(connection: BaseDatabaseWrapper) -> None:
    """Refuses a database in which this version lacks migrations, and which lacks migrations of this version.

    One without the other is an older version beside a newer one (a rolling upgrade), or an upgrade.
    """
    loader = MigrationLoader(connection)
    found, known = set(loader.applied_migrations), set(loader.disk_migrations)
    unknown = sorted(key for key in found - known if key[0] in loader.migrated_apps)
    if unknown and known - found:
        raise CommandError(
            f"the database has the migration {'.'.join(unknown[0])}, which is not in this version, and lacks others;"
            " start the version that made it, or use an empty database"
        )


def _grant(connection: BaseDatabaseWrapper) -> None:
    """Gives the application roles their rights on new tables (``manage.py database roles``)."""
    if database_roles.is_owner(connection):
        for role in database_roles.application_roles(connection):
            database_roles.grant(connection, role)


@contextlib.contextmanager
def _alone(connection: BaseDatabaseWrapper, *, say: Callable[[str], object]) -> Iterator[None]:
    """Holds a lock of this database session, which PostgreSQL releases if the session ends.

    Raises CommandError if another process holds it for LOCK_TIMEOUT_SECONDS.
    """
    # Polled: a session that waits inside a statement would block CREATE INDEX CONCURRENTLY.
    if not _try_lock(connection):
        say(f"migrate: another process is migrating{_holder(connection)}; waiting for it")
        until = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while not _try_lock(connection):
            if time.monotonic() > until:
                raise CommandError(
                    f"another process{_holder(connection)} has been migrating for more than"
                    f" {LOCK_TIMEOUT_SECONDS / 60:.0f} min; wait and start again, or if it hangs, terminate it with"
                    " SELECT pg_terminate_backend(PID)"
                )
            time.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [ADVISORY_LOCK_KEY])


def _try_lock(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [ADVISORY_LOCK_KEY])
        return bool(cursor.fetchone()[0])


def _holder(connection: BaseDatabaseWrapper) -> str:
    """Describes the holder of the lock; "" if it was just released."""
    with connection.cursor() as cursor:
        cursor.execute(HOLDER, [ADVISORY_LOCK_KEY])
        found = cursor.fetchone()
    return f" (PostgreSQL process {found[0]}, client {found[1]})" if found else ""
