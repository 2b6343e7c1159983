from django.db import migrations, models

import kcover_portal.encryption.fields


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0019_job_image_digest"),
    ]

    operations = [
        migrations.AddField(
            model_name="pendingchange",
            name="secret",
            field=kcover_portal.encryption.fields.EncryptedTextField(
                blank=True,
                bound_to="cluster_id",
                db_default="",
                default="",
                help_text="the secret, until the change is closed",
            ),
        ),
        migrations.AlterField(
            model_name="pendingchange",
            name="changes",
            field=models.JSONField(help_text="the patch that was requested; a secret in it is only marked as changed"),
        ),
    ]
