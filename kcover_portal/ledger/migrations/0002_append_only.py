"""The database itself refuses to rewrite the ledger, by triggers of PostgreSQL and of SQLite.

SQLite drops a table's triggers when Django remakes the table: a later migration that alters ``Entry`` or ``Chain`` must
run ``UNGUARD`` and ``GUARD`` around it (a test finds the triggers missing).

INSERT OR REPLACE of SQLite deletes the old row without firing DELETE triggers, unless recursive_triggers is on. Every
connection can switch that off, so a trigger refuses to insert what exists.

The head of a chain may only be set to an entry that exists. The application role can update heads, and no entry.
"""

from django.db import migrations

ENTRY = "the ledger is append-only"
HEAD = "a chain of the ledger only grows"
REAL_HEAD = "the head of a chain is its newest entry"

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
            IF (NEW.sequence, NEW.digest) <> (OLD.sequence, OLD.digest) AND NOT EXISTS (
                SELECT FROM ledger_entry
                WHERE cluster = NEW.cluster AND sequence = NEW.sequence AND digest = NEW.digest
            ) THEN
                RAISE EXCEPTION '{REAL_HEAD}: ledger ledger_chain % is refused', NEW.sequence
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NEW;
        END $$
        """,  # nosec B608
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
        f"""
        CREATE TRIGGER ledger_entry_no_replace BEFORE INSERT ON ledger_entry
        WHEN EXISTS (
            SELECT 1 FROM ledger_entry
            WHERE id = NEW.id OR (cluster = NEW.cluster AND sequence = NEW.sequence)
        )
        BEGIN SELECT RAISE(ABORT, '{ENTRY}: INSERT OR REPLACE on ledger_entry is refused'); END
        """,  # nosec B608
        f"""
        CREATE TRIGGER ledger_chain_no_replace BEFORE INSERT ON ledger_chain
        WHEN EXISTS (SELECT 1 FROM ledger_chain WHERE cluster = NEW.cluster)
        BEGIN SELECT RAISE(ABORT, '{ENTRY}: INSERT OR REPLACE on ledger_chain is refused'); END
        """,  # nosec B608
        f"""
        CREATE TRIGGER ledger_chain_real_head BEFORE UPDATE ON ledger_chain
        WHEN (NEW.sequence <> OLD.sequence OR NEW.digest <> OLD.digest) AND NOT EXISTS (
            SELECT 1 FROM ledger_entry
            WHERE cluster = NEW.cluster AND sequence = NEW.sequence AND digest = NEW.digest
        )
        BEGIN SELECT RAISE(ABORT, '{REAL_HEAD}: ledger ledger_chain is refused'); END
        """,  # nosec B608
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
        "DROP TRIGGER ledger_entry_no_replace",
        "DROP TRIGGER ledger_chain_no_replace",
        "DROP TRIGGER ledger_chain_real_head",
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
