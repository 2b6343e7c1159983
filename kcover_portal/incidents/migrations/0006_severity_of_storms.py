from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def rename(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Incidents without a node, such as storms, had a severity of their own that no filter and no rule knew."""
    apps.get_model("incidents", "Incident").objects.filter(severity="critical").update(severity="fatal")


class Migration(migrations.Migration):
    dependencies = [
        ("incidents", "0005_told_checks"),
    ]

    operations = [
        migrations.RunPython(rename, migrations.RunPython.noop),
    ]
