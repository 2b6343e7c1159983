from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

FOR_A_PERSON = ("reboots_repeat", "inspection")
PAGE = 1_000  # decisions


def judge(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Sets ``needs_person`` of the decisions about open incidents. No others are read.

    The first reason of a decision is the matched rule, the second what holds it. One row at a time, while workers
    decide. Not in the migration that adds the column, which locks the table. Decisions of pods of the former version
    lack it until 15 s after the last old pod ends: a new pod has made them again by then.
    """
    rows = apps.get_model("rescue", "Decision").objects.filter(
        answer="hold", needs_person=False, because__1__code__in=FOR_A_PERSON
    )
    open_ones = rows.filter(incident__state="open").order_by("pk")
    last = 0
    while page := list(open_ones.filter(pk__gt=last).values_list("pk", flat=True)[:PAGE]):
        for pk in page:
            rows.filter(pk=pk).update(needs_person=True)
        last = page[-1]


class Migration(migrations.Migration):
    atomic = False  # faults are decided meanwhile

    dependencies = [("rescue", "0004_decisions_for_people")]

    operations = [migrations.RunPython(judge, migrations.RunPython.noop)]
