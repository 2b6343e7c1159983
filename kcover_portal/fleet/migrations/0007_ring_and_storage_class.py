"""iperf's ring and the storage class of pvc."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0006_check_run_busy"),
    ]

    operations = [
        migrations.AddField(
            model_name="checkrun",
            name="ring",
            field=models.JSONField(
                default=dict, help_text="iperf's ring: its traffic, who is in it, the step it is at"
            ),
        ),
        migrations.AddField(
            model_name="cluster",
            name="storage_class",
            field=models.CharField(
                blank=True,
                help_text="of the check pvc; none: the cluster's default",
                max_length=253,
                validators=[
                    django.core.validators.RegexValidator(
                        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z",
                        "Write the name of a storage class: a-z, 0-9, '-' and '.'.",
                    )
                ],
            ),
        ),
        migrations.AlterField(
            model_name="checkrun",
            name="storage",
            field=models.JSONField(
                default=dict, help_text="how pvc goes, and its result, which is the same for every node"
            ),
        ),
    ]
