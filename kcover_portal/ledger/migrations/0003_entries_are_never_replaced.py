"""Closes two ways around the triggers of 0002.

SQLite: INSERT OR REPLACE deletes the old row without firing DELETE triggers, unless recursive_triggers is on. Every
connection can switch that off, so a trigger refuses to insert what exists.

The head of a chain may only be set to an entry that exists. The application role can update heads, and no entry.
"""

import importlib

from django.db import migrations

append_only = importlib.import_module("kcover_portal.ledger.migrations.0002_append_only")

REAL_HEAD = "the head of a chain is its newest entry"

GUARD = {
    "postgresql": (
        f"""
        CREATE OR REPLACE FUNCTION ledger_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.cluster <> OLD.cluster OR NEW.sequence < OLD.sequence THEN
                RAISE EXCEPTION '{append_only.HEAD}: % back to % is refused', OLD.sequence, NEW.sequence
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
    ),
    "sqlite": (
        f"""
        CREATE TRIGGER ledger_entry_no_replace BEFORE INSERT ON ledger_entry
        WHEN EXISTS (
            SELECT 1 FROM ledger_entry
            WHERE id = NEW.id OR (cluster = NEW.cluster AND sequence = NEW.sequence)
        )
        BEGIN SELECT RAISE(ABORT, '{append_only.ENTRY}: INSERT OR REPLACE on ledger_entry is refused'); END
        """,  # nosec B608
        f"""
        CREATE TRIGGER ledger_chain_no_replace BEFORE INSERT ON ledger_chain
        WHEN EXISTS (SELECT 1 FROM ledger_chain WHERE cluster = NEW.cluster)
        BEGIN SELECT RAISE(ABORT, '{append_only.ENTRY}: INSERT OR REPLACE on ledger_chain is refused'); END
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
    "postgresql": tuple(
        statement.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
        for statement in append_only.GUARD["postgresql"]
        if "FUNCTION ledger_only_grows() RETURNS" in statement
    ),
    "sqlite": (
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
    dependencies = [("ledger", "0002_append_only")]
    operations = [migrations.RunPython(guard, unguard)]
