from django.db import migrations

import kcover_portal.encryption.fields
from kcover_portal.encryption import rotation


def encrypt(apps, schema_editor):
    rotation.rotate([apps.get_model("notify", "Channel")])


class Migration(migrations.Migration):
    dependencies = [
        ("notify", "0001_initial"),
    ]

    operations = [
        migrations.AlterField(
            model_name="channel",
            name="url",
            field=kcover_portal.encryption.fields.EncryptedTextField(
                blank=True,
                bound_to="name",
                help_text="a secret: most services put their key into it; at most 1000 characters",
            ),
        ),
        migrations.AlterField(
            model_name="channel",
            name="secret",
            field=kcover_portal.encryption.fields.EncryptedTextField(
                blank=True,
                bound_to="name",
                help_text="signs what is sent, or is a pager's key; at most 200 characters",
            ),
        ),
        migrations.RunPython(encrypt, migrations.RunPython.noop, elidable=True),
    ]
