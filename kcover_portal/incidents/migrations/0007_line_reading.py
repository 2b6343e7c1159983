from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("incidents", "0006_severity_of_storms")]

    operations = [
        migrations.AddField(
            model_name="incident",
            name="line_reading",
            field=models.JSONField(
                db_default={},
                default=dict,
                help_text="the message as kcover.faults.line_reading reads it; {}: not read yet",
            ),
        ),
    ]
