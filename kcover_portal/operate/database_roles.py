"""The rights of the portal's role in PostgreSQL: it owns nothing, and can only read and append the audit log.

The owner of the tables migrates. The application role has SELECT, INSERT, UPDATE and DELETE on every table, except on
the audit log: SELECT and INSERT on entries and heads, and UPDATE of a head's number and digest, which a trigger lets
only grow to an entry that exists. It owns no table, so it cannot disable triggers.
"""

from collections.abc import Sequence

from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

LEDGER = ("ledger_entry", "ledger_chain")

HOLDERS = """
    SELECT DISTINCT grantee FROM information_schema.role_table_grants
    WHERE table_schema = current_schema() AND table_name = 'ledger_entry' AND privilege_type = 'INSERT'
    AND grantee NOT IN (SELECT tableowner FROM pg_tables WHERE tablename = 'ledger_entry')
    ORDER BY grantee
"""
OWNS = """
    SELECT pg_has_role(current_user, tableowner, 'USAGE') FROM pg_tables
    WHERE schemaname = current_schema() AND tablename = 'ledger_entry'
"""
STATEMENTS = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    "REVOKE ALL ON ledger_entry, ledger_chain FROM PUBLIC, {role}",
    "GRANT SELECT, INSERT ON ledger_entry, ledger_chain TO {role}",
    "GRANT UPDATE (sequence, digest) ON ledger_chain TO {role}",
    "REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {role}",
    "REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC, {role}",
)


def exists(connection: BaseDatabaseWrapper, role: str) -> bool:
    """Returns whether the server has a role of this name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_roles WHERE rolname = %s", [role])
        return bool(cursor.fetchone()[0])


def is_owner(connection: BaseDatabaseWrapper) -> bool:
    """Returns whether the account of this connection can change the tables of the audit log."""
    with connection.cursor() as cursor:
        cursor.execute(OWNS)
        found = cursor.fetchone()
    return bool(found and found[0])


def application_roles(connection: BaseDatabaseWrapper) -> Sequence[str]:
    """Returns the roles that may append to the audit log and do not own it."""
    with connection.cursor() as cursor:
        cursor.execute(HOLDERS)
        return [name for (name,) in cursor.fetchall()]


def statements(connection: BaseDatabaseWrapper, role: str) -> list[str]:
    """Returns the SQL that gives a role its rights, and takes all others of the audit log away."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema(), current_database()")
        schema, database = cursor.fetchone()
        given = {"schema": schema, "database": database, "role": role}
        names = {key: sql.Identifier(value) for key, value in given.items()}
        return [sql.SQL(statement).format(**names).as_string(cursor.connection) for statement in STATEMENTS]


def grant(connection: BaseDatabaseWrapper, role: str) -> None:
    """Gives a role its rights; the account of the connection must own the tables. Repeatable."""
    with connection.cursor() as cursor:
        for statement in statements(connection, role):
            cursor.execute(statement)
