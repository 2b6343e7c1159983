from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Heartbeat",
            fields=[
                ("name", models.CharField(max_length=60, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                (
                    "since",
                    models.DateTimeField(help_text="start of the present run of heartbeats without a gap", null=True),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Lease",
            fields=[
                ("name", models.CharField(max_length=60, primary_key=True, serialize=False)),
                ("holder", models.CharField(blank=True, max_length=120)),
                ("until", models.DateTimeField()),
                ("renewed_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Counter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("topic", models.CharField(max_length=60)),
                ("name", models.CharField(max_length=60)),
                ("count", models.PositiveBigIntegerField(default=0)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("topic", "name"), name="one_counter_a_name")],
            },
        ),
        migrations.CreateModel(
            name="Installation",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                (
                    "mode",
                    models.CharField(
                        choices=[
                            ("paused", "Paused"),
                            ("shadow", "Shadow"),
                            ("approve", "Approve"),
                            ("enforce", "Enforce"),
                        ],
                        default="enforce",
                        max_length=10,
                    ),
                ),
                (
                    "resumes_as",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("paused", "Paused"),
                            ("shadow", "Shadow"),
                            ("approve", "Approve"),
                            ("enforce", "Enforce"),
                        ],
                        help_text="the mode before a pause",
                        max_length=10,
                    ),
                ),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("changed_by", models.CharField(blank=True, max_length=200)),
                ("changed_at", models.DateTimeField(null=True)),
                (
                    "decision_change",
                    models.CharField(
                        blank=True,
                        help_text="id of the last change that affects decisions in every cluster",
                        max_length=32,
                    ),
                ),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="one_installation")],
            },
        ),
        migrations.CreateModel(
            name="RememberedHash",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("topic", models.CharField(max_length=60)),
                ("key", models.CharField(blank=True, max_length=60)),
                ("value", models.CharField(max_length=64)),
                ("at", models.DateTimeField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("topic", "key"), name="one_hash_a_key")],
            },
        ),
    ]
