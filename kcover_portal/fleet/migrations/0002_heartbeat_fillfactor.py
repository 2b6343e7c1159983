"""Leaves room in the pages of tables that are updated in place (PostgreSQL only)."""

from django.db import migrations


def leave_room_in_pages(apps, schema_editor):
    """A heartbeat is then written into the page that holds the old row, and no index changes."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE fleet_agent SET (fillfactor = 50)")
        schema_editor.execute("ALTER TABLE fleet_checkresult SET (fillfactor = 70)")


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial")]
    operations = [migrations.RunPython(leave_room_in_pages, migrations.RunPython.noop)]
