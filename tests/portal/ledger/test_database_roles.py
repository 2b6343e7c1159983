"""The portal's role in PostgreSQL owns nothing: with its account every statement of a forger is refused."""

import os
from collections.abc import Iterator
from datetime import datetime

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from kcover import audit
from kcover_portal.ledger import queries, services
from kcover_portal.operate import database_roles

# Roles belong to the server, which all workers of a test run share.
ROLE = f"kcover_application_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
PASSWORD = "for-tests-only"
on_postgresql = pytest.mark.postgres(reason="SQLite has no accounts")
TRIGGERS = ("ledger_entry_append_only", "ledger_chain_stays", "ledger_chain_only_grows")
FORGERIES = [
    "ALTER TABLE ledger_entry DISABLE TRIGGER ledger_entry_append_only",
    "ALTER TABLE ledger_entry DISABLE TRIGGER ALL",
    "ALTER TABLE ledger_chain DISABLE TRIGGER USER",
    "ALTER TABLE ledger_entry ALTER COLUMN actor TYPE text",
    "ALTER TABLE ledger_entry RENAME TO elsewhere",
    f"ALTER TABLE ledger_entry OWNER TO {ROLE}",
    "DROP TRIGGER ledger_entry_append_only ON ledger_entry",
    "DROP TABLE ledger_entry",
    "DROP FUNCTION ledger_refuse() CASCADE",
    "CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE OR REPLACE FUNCTION ledger_only_grows() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE RULE away AS ON INSERT TO ledger_entry DO INSTEAD NOTHING",
    "CREATE TRIGGER mine BEFORE INSERT ON ledger_entry EXECUTE FUNCTION ledger_refuse()",
    "CREATE TABLE mine (x int)",
    "SET session_replication_role = replica",
    "SET ROLE kcover",
    "TRUNCATE ledger_entry",
    "TRUNCATE ledger_chain CASCADE",
    "DELETE FROM ledger_entry WHERE sequence > 2",
    "DELETE FROM ledger_chain",
    "UPDATE ledger_entry SET actor = 'user:somebody-else'",
    "UPDATE ledger_chain SET cluster = 'c9'",
    "UPDATE ledger_chain SET sequence = 1",
    "UPDATE ledger_chain SET sequence = 9",
    "UPDATE ledger_chain SET digest = ''",
    "INSERT INTO ledger_entry (cluster, sequence, at, actor, verb, subject, node, data, previous, digest)"
    " SELECT cluster, sequence, at, 'x', verb, subject, node, data, previous, digest FROM ledger_entry"
    " ON CONFLICT (cluster, sequence) DO UPDATE SET actor = 'x'",
    "COPY ledger_entry FROM PROGRAM 'true'",
    "UPDATE django_migrations SET name = 'x'",
]


@on_postgresql
@pytest.mark.django_db
def test_inv_46_the_ledger_cannot_be_truncated_by_its_owner_either(now: datetime) -> None:
    services.record("c1", audit.PasswordChanged(user="ann"), actor="system", now=now)
    refused = pytest.raises(IntegrityError, match="append-only: TRUNCATE on ledger_entry")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE ledger_entry CASCADE")


@pytest.fixture
def application(transactional_db: None, now: datetime) -> Iterator[psycopg.Connection]:
    """A session of the application role, beside a chain of three entries."""
    for n in range(3):
        services.record("c1", audit.PasswordChanged(user=str(n)), actor="system", now=now)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP ROLE IF EXISTS {ROLE}")
        cursor.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
    call_command("database", "roles", application=ROLE)
    given = {**connection.get_connection_params(), "user": ROLE, "password": PASSWORD}
    given.pop("cursor_factory", None)
    given.pop("context", None)
    try:
        with psycopg.connect(**given, autocommit=True) as session:
            yield session
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP OWNED BY {ROLE}")
            cursor.execute(f"DROP ROLE {ROLE}")


@on_postgresql
def test_inv_46_the_portals_own_account_cannot_rewrite_the_ledger(application: psycopg.Connection) -> None:
    application.execute(f"GRANT ALL ON ledger_entry TO {ROLE}")  # a warning: nothing was granted
    for statement in FORGERIES:
        with pytest.raises(psycopg.Error):
            application.execute(statement)
    assert queries.verify("c1") == queries.ChainCheck("c1", 3)
    enabled = application.execute(
        "SELECT tgname FROM pg_trigger WHERE tgenabled = 'O' AND tgname = ANY(%s)", [list(TRIGGERS)]
    )
    assert {name for (name,) in enabled} == set(TRIGGERS)


@on_postgresql
def test_inv_46_a_temporary_table_replaces_no_entry(application: psycopg.Connection) -> None:
    """Not even for a role that may create one, as where the owner of the database granted it."""
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        application.execute("CREATE TEMPORARY TABLE mine (x int)")
    with connection.cursor() as cursor:
        cursor.execute(f'GRANT TEMPORARY ON DATABASE "{connection.settings_dict["NAME"]}" TO {ROLE}')
    application.execute("CREATE TEMPORARY TABLE ledger_entry (LIKE public.ledger_entry)")
    application.execute(
        "INSERT INTO pg_temp.ledger_entry"
        " (id, cluster, sequence, at, actor, verb, subject, node, data, previous, digest)"
        " SELECT id, cluster, 9, at, actor, verb, subject, node, data, previous, digest FROM public.ledger_entry"
        " WHERE sequence = 3"
    )
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        application.execute("UPDATE public.ledger_chain SET sequence = 9")
    assert queries.verify("c1") == queries.ChainCheck("c1", 3)


@on_postgresql
def test_the_application_role_can_do_the_portals_work(application: psycopg.Connection, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {ROLE}")
        try:
            assert not database_roles.is_owner(connection)
            services.record("c1", audit.PasswordChanged(user="x"), actor="system", now=now)
            services.record("new", audit.PasswordChanged(user="x"), actor="system", now=now)
            with pytest.raises(CommandError, match="does not own"):
                call_command("database", "roles", application=ROLE)
            cursor.execute("INSERT INTO runtime_counter (topic, name, count) VALUES ('t', 'n', 1)")
            cursor.execute("UPDATE runtime_counter SET count = 2")
            cursor.execute("DELETE FROM runtime_counter")
        finally:
            cursor.execute("RESET ROLE")
    assert queries.verify("c1").entries == 4
    assert queries.verify("new").intact


@on_postgresql
def test_a_migration_gives_the_role_its_rights_on_new_tables(application: psycopg.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE of_a_later_version (x int)")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            application.execute("SELECT * FROM of_a_later_version")
        assert database_roles.application_roles(connection) == [ROLE]
        call_command("migrate", verbosity=0)
        application.execute("SELECT * FROM of_a_later_version")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            application.execute("UPDATE ledger_entry SET actor = 'x'")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE of_a_later_version")


@on_postgresql
@pytest.mark.django_db
def test_a_role_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="CREATE ROLE nobody LOGIN"):
        call_command("database", "roles", application="nobody")
    call_command("database", "roles", "--print", application='no"body')
    assert 'TO "no""body";' in capsys.readouterr().out


@pytest.mark.django_db
def test_sqlite_has_no_roles() -> None:
    if connection.vendor == "sqlite":
        with pytest.raises(CommandError, match="PostgreSQL only"):
            call_command("database", "roles", application="x")
