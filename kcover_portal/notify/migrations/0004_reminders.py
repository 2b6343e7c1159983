from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("notify", "0003_opsgenie")]

    operations = [
        migrations.AddField(
            model_name="channel",
            name="remind",
            field=models.PositiveIntegerField(
                help_text="seconds until a question that waits is told again; nothing: half of its time; 0: never",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="notice",
            name="again",
            field=models.BooleanField(default=False, help_text="a reminder of what was told before"),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(fields=["record", "kind"], name="notices_of_a_record"),
        ),
    ]
