from django.db import migrations, models


class Migration(migrations.Migration):
    """A fleet's tokens are asked for by node (enrolling) and by when they were revoked (every five seconds)."""

    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.AddIndex(
            model_name="apitoken",
            index=models.Index(fields=["cluster", "node"], name="tokens_of_node"),
        ),
        migrations.AddIndex(
            model_name="apitoken",
            index=models.Index(
                condition=models.Q(("revoked_at__isnull", False)), fields=["revoked_at"], name="tokens_revoked"
            ),
        ),
    ]
