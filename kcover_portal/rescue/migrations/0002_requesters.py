from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rescue", "0001_initial")]

    operations = [
        migrations.AddField(
            "rescue",
            "requesters",
            models.JSONField(default=list, help_text="the people who count as the requester"),
        ),
        migrations.AddField(
            "approval",
            "controllers",
            models.JSONField(default=list, help_text="others who could have used the account or the link"),
        ),
    ]
