from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0007_ring_and_storage_class")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="past_boots",
            field=models.JSONField(default=list, help_text="boots that the watch showed before, the last one first"),
        ),
    ]
