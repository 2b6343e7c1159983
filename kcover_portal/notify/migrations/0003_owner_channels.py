from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("notify", "0002_encrypted_secrets"),
    ]

    operations = [
        migrations.AddField(
            model_name="channel",
            name="for_owners",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="owners of jobs may name it in the annotation kcover.io/notify",
            ),
        ),
    ]
