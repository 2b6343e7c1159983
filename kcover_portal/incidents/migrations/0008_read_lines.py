from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from kcover.faults import line_reading

PAGE = 1_000  # incidents


def read(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Reads the messages of open incidents. Others are read when they are needed, as are those of an older portal.

    One row at a time: a report locks the incidents of its node in an order of its own.
    """
    rows = apps.get_model("incidents", "Incident").objects.filter(state="open").order_by("pk")
    last = 0
    while page := list(rows.filter(pk__gt=last).values_list("pk", "message")[:PAGE]):
        for pk, message in page:
            rows.filter(pk=pk).update(line_reading=line_reading.read(message).to_json(message))
        last = page[-1][0]


class Migration(migrations.Migration):
    atomic = False  # reports are stored meanwhile

    dependencies = [("incidents", "0007_line_reading")]

    operations = [migrations.RunPython(read, migrations.RunPython.noop)]
