"""Leader election between portals that manage the same cluster."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0010_lemon_repairs"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="action_lease",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="the portal acts only while it holds a Lease of the cluster; otherwise it is in shadow",
            ),
        ),
        migrations.AddField(
            model_name="cluster",
            name="acts_until",
            field=models.DateTimeField(help_text="with action_lease: until then no other portal acts", null=True),
        ),
        migrations.AddField(
            model_name="cluster",
            name="lease_holder",
            field=models.CharField(
                default="", db_default="", blank=True, help_text="who holds that Lease, as last seen", max_length=253
            ),
        ),
    ]
