from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("incidents", "0003_judged_labels_and_jobs"),
    ]

    operations = [
        migrations.AddField(
            model_name="incident",
            name="told",
            field=models.JSONField(default=list, help_text="the log records that were counted, by boot and source"),
        ),
    ]
