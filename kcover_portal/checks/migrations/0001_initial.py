import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("fleet", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="CheckRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("checks", models.JSONField(default=list, help_text="names, in running order")),
                ("level", models.PositiveSmallIntegerField(default=1, help_text="of dcgm, 1 to 4")),
                (
                    "peers",
                    models.JSONField(default=list, help_text="addresses that every node pings; empty: its neighbours"),
                ),
                ("batch", models.PositiveIntegerField(default=0, help_text="nodes at a time; 0: all at once")),
                ("total", models.PositiveIntegerField(default=0, help_text="nodes")),
                ("done", models.PositiveIntegerField(default=0, help_text="nodes that are finished")),
                (
                    "wrong",
                    models.PositiveIntegerField(
                        default=0, help_text="finished nodes with a failure or without an answer"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("running", "Running"), ("finished", "Finished"), ("stopped", "Stopped")],
                        default="running",
                        max_length=10,
                    ),
                ),
                (
                    "storage",
                    models.JSONField(
                        default=dict, help_text="state and result of the check pvc, the same for every node"
                    ),
                ),
                ("ring", models.JSONField(default=dict, help_text="iperf's ring: traffic, members, current step")),
                ("busy_until", models.DateTimeField(help_text="lease of the worker that calls the cluster", null=True)),
                ("asked_by", models.CharField(max_length=200)),
                ("asked_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="check_runs", to="fleet.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="CheckTarget",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.PositiveIntegerField()),
                ("batch", models.PositiveIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("asked", "Running"),
                            ("done", "Done"),
                            ("silent", "No answer"),
                            ("stopped", "Stopped"),
                        ],
                        default="waiting",
                        max_length=10,
                    ),
                ),
                (
                    "invasive",
                    models.BooleanField(default=False, help_text="a check that needs idle GPUs was requested"),
                ),
                ("results", models.JSONField(default=list)),
                ("said", models.JSONField(default=list, help_text="Autopilot's status words")),
                ("note", models.JSONField(default=dict, help_text="a Reason: why there are no results; {}: there are")),
                ("asked_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "label_before",
                    models.CharField(blank=True, help_text="gpuhealth label before TESTING", max_length=63),
                ),
                (
                    "labelled_at",
                    models.DateTimeField(help_text="when its result was written to the node's labels", null=True),
                ),
                (
                    "command",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="check_target",
                        to="fleet.command",
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="check_targets", to="fleet.node"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="targets", to="checks.checkrun"
                    ),
                ),
            ],
            options={
                "ordering": ("run_id", "place"),
            },
        ),
        migrations.AddIndex(
            model_name="checkrun",
            index=models.Index(condition=models.Q(("state", "running")), fields=["id"], name="check_runs_going_on"),
        ),
        migrations.AddIndex(
            model_name="checktarget",
            index=models.Index(fields=["run", "finished_at"], name="check_targets_finished"),
        ),
        migrations.AddIndex(
            model_name="checktarget",
            index=models.Index(
                condition=models.Q(("invasive", True), ("labelled_at", None)),
                fields=["node"],
                name="check_targets_to_label",
            ),
        ),
        migrations.AddConstraint(
            model_name="checktarget",
            constraint=models.UniqueConstraint(fields=("run", "place"), name="one_target_a_place"),
        ),
        migrations.AddConstraint(
            model_name="checktarget",
            constraint=models.UniqueConstraint(
                condition=models.Q(("invasive", True), ("state", "asked")),
                fields=("node",),
                name="one_invasive_target_a_node",
            ),
        ),
    ]
