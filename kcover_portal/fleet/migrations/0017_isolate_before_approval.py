from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0016_node_addresses"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="isolate_before_approval",
            field=models.BooleanField(
                db_default=True, default=True, help_text="in approve mode, nodes are isolated before a person is asked"
            ),
        ),
    ]
