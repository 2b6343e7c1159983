from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("incidents", "0004_recent_incidents")]

    operations = [
        migrations.AddField(
            model_name="incident",
            name="told_checks",
            field=models.JSONField(
                db_default=[],
                default=list,
                help_text="where several checks tell it: witness, kind, code, last fault and end of each",
            ),
        ),
    ]
