from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0023_on_drain_timeout")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="restated",
            field=models.JSONField(
                db_default={},
                default=dict,
                help_text=(
                    "names of its machine that the node changed since it joined, as they were; {}: none, or confirmed"
                ),
            ),
        ),
    ]
