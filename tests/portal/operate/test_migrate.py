"""`manage.py migrate`: of several that begin at once, one migrates at a time."""

import threading

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.core.management.commands import migrate as djangos
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AddField
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.fields import NOT_PROVIDED
from django.test.utils import CaptureQueriesContext

from kcover_portal.operate.management.commands import migrate

pytestmark = pytest.mark.django_db
on_postgresql = pytest.mark.postgres(reason="SQLite has no such lock")
HELD = """
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
    WHERE locktype = 'advisory' AND granted AND datname = current_database()
"""


class Heard:
    """A stream that says when something was written to it."""

    def __init__(self):
        self.text, self.spoken = "", threading.Event()

    def write(self, text):
        self.text += text
        self.spoken.set()


@pytest.fixture
def other():
    """The session of another process."""
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as session:
        yield session


@pytest.fixture
def migrated(monkeypatch):
    """What Django's own command was called with; it does nothing here."""
    calls = []
    monkeypatch.setattr(djangos.Command, "handle", lambda _self, **options: calls.append(options["plan"]))
    return calls


def test_the_command_has_all_options_of_django(migrated):
    call_command("migrate", plan=True)
    call_command("migrate")
    assert migrated == [True, False]


def test_a_database_with_another_history_is_refused(migrated):
    rows = MigrationRecorder(connection)
    rows.record_applied("fleet", "0099_of_another_version")
    call_command("migrate")  # an older version beside a newer one
    rows.record_unapplied("anchors", "0001_initial")
    with pytest.raises(CommandError, match=r"fleet\.0099_of_another_version"):
        call_command("migrate")
    rows.record_unapplied("fleet", "0099_of_another_version")
    call_command("migrate")  # an upgrade
    assert migrated == [False, False]


@on_postgresql
def test_the_second_migration_waits_for_the_first(other, migrated):
    other.execute("SELECT pg_advisory_lock(%s)", [migrate.ADVISORY_LOCK_KEY])
    heard = Heard()

    def second():
        try:
            call_command("migrate", stderr=heard)
        finally:
            connection.close()

    thread = threading.Thread(target=second)
    thread.start()
    assert heard.spoken.wait(60)
    assert f"another process is migrating (PostgreSQL process {other.info.backend_pid}, client" in heard.text
    assert migrated == []
    other.execute("SELECT pg_advisory_unlock(%s)", [migrate.ADVISORY_LOCK_KEY])
    thread.join(60)
    assert migrated == [False]
    assert other.execute(HELD).fetchone() == (0,)


@on_postgresql
def test_a_migration_that_waits_too_long_ends_and_names_the_blocking_process(other, migrated, monkeypatch):
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_SECONDS", 0.0)
    other.execute("SELECT pg_advisory_lock(%s)", [migrate.ADVISORY_LOCK_KEY])
    with pytest.raises(
        CommandError, match=rf"process {other.info.backend_pid}, .* terminate it with SELECT pg_terminate_backend"
    ):
        call_command("migrate", stderr=Heard())
    assert migrated == []


@on_postgresql
def test_the_lock_is_held_while_it_migrates_and_given_back_when_it_fails(other, monkeypatch):
    seen = []

    def fails(_self, **_options):
        seen.append(other.execute(HELD).fetchone())
        raise RuntimeError("a migration that breaks")

    monkeypatch.setattr(djangos.Command, "handle", fails)
    with pytest.raises(RuntimeError, match="breaks"):
        call_command("migrate")
    assert seen == [(1,)]
    assert other.execute(HELD).fetchone() == (0,)


def test_the_former_version_can_write_while_a_new_one_is_installed() -> None:
    """A column that the former version does not know is nullable or has a default in the database."""
    unknown = [
        f"{app}.{name}: {operation.model_name}.{operation.name}"
        for (app, name), migration in MigrationLoader(None).disk_migrations.items()
        if migration.__module__.startswith("kcover_portal.")
        for operation in migration.operations
        if isinstance(operation, AddField) and not operation.field.many_to_many
        if not operation.field.null and operation.field.db_default is NOT_PROVIDED and migration.initial is not True
    ]
    assert not unknown, "add db_default: " + "; ".join(unknown)


@on_postgresql
@pytest.mark.django_db(transaction=True)
def test_an_index_whose_build_was_interrupted_is_built_anew_beside_writers():
    MigrationExecutor(connection).migrate([("incidents", "0003_flapping")])
    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX recent_incidents ON incidents_incident (severity)")
    with CaptureQueriesContext(connection) as captured:
        call_command("migrate", verbosity=0)  # to the end: other tests use this database
    built = [query["sql"] for query in captured.captured_queries if "recent_incidents" in query["sql"]]
    assert ["CONCURRENTLY" in sql for sql in built if "INDEX" in sql] == [True, True]
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "incidents_incident")
        cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'recent_incidents'::regclass")
        assert cursor.fetchone() == (True,)
    assert constraints["recent_incidents"]["columns"] == ["cluster_id", "last_at"]
