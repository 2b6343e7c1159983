import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Policy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("RescuePolicy", "Rescue"), ("WarmStandbyPolicy", "Standby")],
                        default="RescuePolicy",
                        max_length=20,
                    ),
                ),
                ("name", models.CharField(max_length=253)),
                ("revision", models.PositiveIntegerField(default=0)),
                ("created_at", models.DateTimeField()),
                ("archived_at", models.DateTimeField(null=True)),
                ("archived_by", models.CharField(blank=True, max_length=200)),
                ("archived_because", models.CharField(blank=True, max_length=500)),
            ],
            options={
                "verbose_name_plural": "policies",
                "ordering": ("name",),
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "name"), name="one_policy_a_name"),
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "WarmStandbyPolicy"), ("revision__gt", 0)),
                        fields=("kind",),
                        name="one_standby_policy_in_force",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Revision",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("text", models.TextField()),
                ("document", models.JSONField()),
                ("author", models.CharField(max_length=200)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("at", models.DateTimeField()),
                (
                    "policy",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="revisions", to="policies.policy"
                    ),
                ),
            ],
            options={
                "ordering": ("policy_id", "-number"),
                "constraints": [models.UniqueConstraint(fields=("policy", "number"), name="one_revision_a_number")],
            },
        ),
    ]
