"""A second kubeconfig with fewer rights, for web and live."""

from django.db import migrations

import kcover_portal.encryption.fields


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0007_hardware"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="read_kubeconfig",
            field=kcover_portal.encryption.fields.EncryptedTextField(
                default="",
                db_default="",
                blank=True,
                bound_to="name",
                help_text="with fewer rights, for web and live; empty: they use the other one",
            ),
        ),
        migrations.AlterField(
            model_name="cluster",
            name="kubeconfig",
            field=kcover_portal.encryption.fields.EncryptedTextField(blank=True, bound_to="name", engine_only=True),
        ),
    ]
