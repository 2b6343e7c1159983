from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

FOR_A_PERSON = ("reboots_repeat", "inspection")


def judge(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Sets ``needs_person`` of the decisions so far. The first reason is the matched rule, the second what holds it.

    Not in the migration that adds the column, which locks the table. A decision that an older portal stores after this
    one is made again within minutes, and then judged.
    """
    rows = apps.get_model("rescue", "Decision").objects.filter(answer="hold", needs_person=False)
    rows.filter(because__1__code__in=FOR_A_PERSON).update(needs_person=True)


class Migration(migrations.Migration):
    dependencies = [("rescue", "0004_decisions_for_people")]

    operations = [migrations.RunPython(judge, migrations.RunPython.noop)]
