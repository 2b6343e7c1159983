"""The functions of the triggers look for tables in the portal's schema only.

PostgreSQL looks for a table among temporary ones first. A role that may create those could put one of its own in place
of ``ledger_entry``, and set a head to an entry that exists nowhere else.
"""

from django.db import migrations

NAMES = ("ledger_refuse", "ledger_only_grows")
FIX = {
    "postgresql": (
        f"""
        DO $$ DECLARE name text; BEGIN
            FOREACH name IN ARRAY ARRAY[{", ".join(f"'{name}'" for name in NAMES)}] LOOP
                EXECUTE format('ALTER FUNCTION %I() SET search_path = pg_catalog, %I, pg_temp', name, current_schema());
            END LOOP;
        END $$
        """,
    ),
    "sqlite": (),
}
UNFIX = {"postgresql": tuple(f"ALTER FUNCTION {name}() RESET search_path" for name in NAMES), "sqlite": ()}


def fix(apps, schema_editor):
    for statement in FIX[schema_editor.connection.vendor]:
        schema_editor.execute(statement, params=None)


def unfix(apps, schema_editor):
    for statement in UNFIX[schema_editor.connection.vendor]:
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0003_rescue_ends")]
    operations = [migrations.RunPython(fix, unfix)]
