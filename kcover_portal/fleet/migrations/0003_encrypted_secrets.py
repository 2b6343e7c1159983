import django.core.validators
from django.db import migrations

import kcover_portal.encryption.fields
from kcover_portal.encryption import rotation


def encrypt(apps, schema_editor):
    rotation.rotate([apps.get_model("fleet", "Cluster")])


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0002_heartbeat_fillfactor"),
    ]

    operations = [
        migrations.AlterField(
            model_name="cluster",
            name="kubeconfig",
            field=kcover_portal.encryption.fields.EncryptedTextField(blank=True, bound_to="name"),
        ),
        migrations.AlterField(
            model_name="cluster",
            name="decision_secret",
            field=kcover_portal.encryption.fields.EncryptedTextField(
                blank=True,
                bound_to="name",
                help_text="signs its requests and responses",
                validators=[django.core.validators.MaxLengthValidator(200)],
            ),
        ),
        migrations.RunPython(encrypt, migrations.RunPython.noop, elidable=True),
    ]
