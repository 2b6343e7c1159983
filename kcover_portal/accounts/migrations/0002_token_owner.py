from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.AddField(
            "apitoken",
            "owner",
            models.ForeignKey(
                null=True,
                on_delete=models.deletion.PROTECT,
                related_name="tokens",
                to=settings.AUTH_USER_MODEL,
                help_text="who counts as the requester of its acts; none for credentials of nodes and tokens of the shell",
            ),
        ),
    ]
