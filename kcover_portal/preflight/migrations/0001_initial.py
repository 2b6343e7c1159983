import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("fleet", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="PreflightRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.CharField(max_length=63)),
                ("workload", models.CharField(max_length=253)),
                (
                    "uid",
                    models.CharField(
                        blank=True, help_text="uid of the workload's owner; it distinguishes reruns", max_length=64
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "Waiting for reports"), ("complete", "Complete"), ("expired", "Expired")],
                        default="waiting",
                        max_length=10,
                    ),
                ),
                ("size", models.PositiveIntegerField(help_text="number of expected reports, one per node")),
                ("received", models.PositiveIntegerField(default=0)),
                ("rejected", models.PositiveIntegerField(default=0)),
                ("slow", models.JSONField(default=list)),
                ("abnormal", models.JSONField(default=list)),
                (
                    "suspects",
                    models.JSONField(default=list, help_text="both nodes, if the job has only two and one is slow"),
                ),
                ("because", models.JSONField(default=list)),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("due_at", models.DateTimeField(help_text="when the run expires if it is incomplete")),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="preflight_runs", to="fleet.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="PreflightReport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("body", models.JSONField(help_text="the known fields of the report")),
                (
                    "verdict",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "Nothing"),
                            ("abnormal", "Abnormal"),
                            ("slow", "Slow"),
                            ("suspect", "Suspect (one of two)"),
                        ],
                        max_length=10,
                    ),
                ),
                ("at", models.DateTimeField()),
                ("told_at", models.DateTimeField(help_text="when the verdict was reported as a fault", null=True)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="preflight_reports", to="fleet.node"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="reports", to="preflight.preflightrun"
                    ),
                ),
            ],
            options={
                "ordering": ("run_id", "node_id"),
            },
        ),
        migrations.CreateModel(
            name="PreflightRefusal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.CharField(max_length=63)),
                ("workload", models.CharField(max_length=253)),
                ("uid", models.CharField(blank=True, max_length=64)),
                ("node", models.CharField(blank=True, max_length=253)),
                ("path", models.CharField(blank=True, max_length=200)),
                ("because", models.JSONField()),
                ("at", models.DateTimeField(db_index=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="fleet.cluster"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="refusals",
                        to="preflight.preflightrun",
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.AddIndex(
            model_name="preflightrun",
            index=models.Index(condition=models.Q(("state", "waiting")), fields=["due_at"], name="preflight_runs_due"),
        ),
        migrations.AddIndex(
            model_name="preflightrun",
            index=models.Index(fields=["cluster", "namespace", "workload", "-id"], name="preflight_runs_of"),
        ),
        migrations.AddConstraint(
            model_name="preflightrun",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "waiting")),
                fields=("cluster", "namespace", "workload", "uid"),
                name="one_waiting_run_a_workload",
            ),
        ),
        migrations.AddIndex(
            model_name="preflightreport",
            index=models.Index(
                condition=models.Q(("told_at", None), ("verdict__in", ("abnormal", "slow"))),
                fields=["id"],
                name="preflight_to_tell",
            ),
        ),
        migrations.AddConstraint(
            model_name="preflightreport",
            constraint=models.UniqueConstraint(fields=("run", "node"), name="one_report_a_node"),
        ),
    ]
