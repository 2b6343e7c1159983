from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("api", "0001_initial")]

    operations = [
        migrations.AddField(
            "answered",
            "rights",
            models.JSONField(default=list, help_text="[role, cluster] that the request was checked for"),
        ),
    ]
