"""The database itself refuses to rewrite the ledger: triggers, as PostgreSQL and SQLite each spell them.

SQLite drops a table's triggers when Django remakes the table: a later migration that alters ``Entry`` or ``Chain`` must
run ``UNGUARD`` and ``GUARD`` around it (a test finds the triggers missing).
"""

from django.db import migrations

ENTRY = "the ledger is append-only"
HEAD = "a chain of the ledger only grows"

GUARD = {
    "postgresql": (
        f"""
        CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '{ENTRY}: % on % is refused', TG_OP, TG_TABLE_NAME
                USING ERRCODE = 'integrity_constraint_violation';
        END $$
        """,
        f"""
        CREATE FUNCTION ledger_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.cluster <> OLD.cluster OR NEW.sequence < OLD.sequence THEN
                RAISE EXCEPTION '{HEAD}: % back to % is refused', OLD.sequence, NEW.sequence
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NEW;
        END $$
        """,
        """
        CREATE TRIGGER ledger_entry_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entry
        FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()
        """,
        """
        CREATE TRIGGER ledger_chain_stays BEFORE DELETE OR TRUNCATE ON ledger_chain
        FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()
        """,
        """
        CREATE TRIGGER ledger_chain_only_grows BEFORE UPDATE ON ledger_chain
        FOR EACH ROW EXECUTE FUNCTION ledger_only_grows()
        """,
    ),
    "sqlite": (
        f"""
        CREATE TRIGGER ledger_entry_no_update BEFORE UPDATE ON ledger_entry
        BEGIN SELECT RAISE(ABORT, '{ENTRY}: UPDATE on ledger_entry is refused'); END
        """,
        f"""
        CREATE TRIGGER ledger_entry_no_delete BEFORE DELETE ON ledger_entry
        BEGIN SELECT RAISE(ABORT, '{ENTRY}: DELETE on ledger_entry is refused'); END
        """,
        f"""
        CREATE TRIGGER ledger_chain_stays BEFORE DELETE ON ledger_chain
        BEGIN SELECT RAISE(ABORT, '{ENTRY}: DELETE on ledger_chain is refused'); END
        """,
        f"""
        CREATE TRIGGER ledger_chain_only_grows BEFORE UPDATE ON ledger_chain
        WHEN NEW.cluster <> OLD.cluster OR NEW.sequence < OLD.sequence
        BEGIN SELECT RAISE(ABORT, '{HEAD}: a step back is refused'); END
        """,
    ),
}
UNGUARD = {
    "postgresql": (
        "DROP TRIGGER ledger_entry_append_only ON ledger_entry",
        "DROP TRIGGER ledger_chain_stays ON ledger_chain",
        "DROP TRIGGER ledger_chain_only_grows ON ledger_chain",
        "DROP FUNCTION ledger_refuse()",
        "DROP FUNCTION ledger_only_grows()",
    ),
    "sqlite": (
        "DROP TRIGGER ledger_entry_no_update",
        "DROP TRIGGER ledger_entry_no_delete",
        "DROP TRIGGER ledger_chain_stays",
        "DROP TRIGGER ledger_chain_only_grows",
    ),
}


def guard(apps, schema_editor):
    for statement in GUARD[schema_editor.connection.vendor]:
        schema_editor.execute(statement, params=None)


def unguard(apps, schema_editor):
    for statement in UNGUARD[schema_editor.connection.vendor]:
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]
    operations = [migrations.RunPython(guard, unguard)]
