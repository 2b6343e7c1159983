from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

BEFORE = "docker.io/library/busybox:1.36"
AFTER = "docker.io/library/busybox:1.36@sha256:73aaf090f3d85aa34ee199857f03fa3a95c8ede2ffd4cc2cdb5b94e566b11662"


def pin(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Clusters with the default follow it, because the admission policy of the chart does."""
    apps.get_model("fleet", "Cluster").objects.filter(job_image=BEFORE).update(job_image=AFTER)


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0018_machine_after"),
    ]

    operations = [
        migrations.AlterField(
            model_name="cluster", name="job_image", field=models.CharField(default=AFTER, max_length=300)
        ),
        migrations.RunPython(pin, migrations.RunPython.noop),
    ]
