from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0008_past_boots")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="taken_by",
            field=models.CharField(
                blank=True, default="", help_text="who acts on it, outside of its own rescue", max_length=60
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="node",
            name="taken_until",
            field=models.DateTimeField(help_text="when that call must be over", null=True),
        ),
    ]
