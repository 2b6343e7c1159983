import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("fleet", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Incident",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=12)),
                ("code", models.CharField(max_length=64)),
                (
                    "device",
                    models.CharField(blank=True, help_text="PCI address, else GPU UUID, else nothing", max_length=128),
                ),
                ("scope", models.JSONField(default=list, help_text="the nodes of a storm, by name")),
                ("gpu_uuid", models.CharField(blank=True, max_length=96)),
                (
                    "state",
                    models.CharField(choices=[("open", "Open"), ("closed", "Closed")], default="open", max_length=10),
                ),
                ("severity", models.CharField(blank=True, max_length=12)),
                (
                    "is_user_fault",
                    models.BooleanField(default=False, help_text="caused by a user's program, not a fault of the node"),
                ),
                ("cause", models.PositiveIntegerField(help_text="the Xid that the line names as its cause", null=True)),
                ("drill", models.BooleanField(default=False)),
                ("count", models.PositiveBigIntegerField(default=0)),
                (
                    "message",
                    models.TextField(blank=True, help_text="the log line, or the English sentence of because"),
                ),
                (
                    "because",
                    models.JSONField(
                        default=dict, help_text="what the portal found itself; {}: the message is a log line"
                    ),
                ),
                ("boot_id", models.CharField(blank=True, help_text="of the last occurrence", max_length=64)),
                (
                    "counted_records",
                    models.JSONField(default=list, help_text="the log records that were counted, by boot and source"),
                ),
                (
                    "fault_digests",
                    models.JSONField(
                        default=list, help_text="of an overflow: digests of the distinct faults that it counts"
                    ),
                ),
                ("opened_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("closed_at", models.DateTimeField(null=True)),
                ("closed_because", models.JSONField(default=dict, help_text="the reason why it was closed; {}: none")),
                ("decided_at", models.DateTimeField(null=True)),
                (
                    "decided_labels",
                    models.CharField(blank=True, help_text="digest of the node's labels when decided", max_length=16),
                ),
                (
                    "announced_at",
                    models.DateTimeField(help_text="when the cluster's Event about it was written", null=True),
                ),
                (
                    "decide_at",
                    models.DateTimeField(help_text="when it is to be decided next; null: it is decided", null=True),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="incidents", to="fleet.cluster"
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="incidents",
                        to="fleet.node",
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Occurrence",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("boot_id", models.CharField(blank=True, max_length=64)),
                ("source", models.CharField(max_length=32)),
                ("sequence", models.BigIntegerField(null=True)),
                ("message", models.TextField(blank=True)),
                ("because", models.JSONField(default=dict, help_text="as of the incident")),
                ("drill", models.BooleanField(default=False)),
                ("count", models.PositiveBigIntegerField(default=1)),
                ("seen_at", models.DateTimeField(help_text="by the agent's clock: shown, never trusted", null=True)),
                ("at", models.DateTimeField(help_text="when the portal stored it")),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="occurrences", to="fleet.node"
                    ),
                ),
                (
                    "incident",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="occurrences", to="incidents.incident"
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="JobSeen",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "job",
                    models.CharField(
                        blank=True, help_text="namespace/name; empty: jobs were looked up", max_length=320
                    ),
                ),
                ("at", models.DateTimeField(help_text="when it was last seen there")),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="jobs_seen", to="fleet.node"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("batch_id", models.UUIDField()),
                ("at", models.DateTimeField(db_index=True)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="batches", to="fleet.node"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("node", "batch_id"), name="one_batch")],
            },
        ),
        migrations.AddIndex(
            model_name="incident",
            index=models.Index(
                condition=models.Q(("decide_at__isnull", False)), fields=["decide_at"], name="due_incidents"
            ),
        ),
        migrations.AddIndex(
            model_name="incident",
            index=models.Index(fields=["node", "state"], name="incidents_of_node"),
        ),
        migrations.AddIndex(
            model_name="incident",
            index=models.Index(fields=["cluster", "state", "-id"], name="incidents_of_cluster"),
        ),
        migrations.AddConstraint(
            model_name="incident",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "open")),
                fields=("node", "kind", "code", "device"),
                name="one_open_incident_a_fault",
            ),
        ),
        migrations.AddConstraint(
            model_name="incident",
            constraint=models.UniqueConstraint(
                condition=models.Q(("node", None), ("state", "open")),
                fields=("cluster", "kind", "code"),
                name="one_open_storm_a_symptom",
            ),
        ),
        migrations.AddIndex(
            model_name="occurrence",
            index=models.Index(fields=["incident", "-id"], name="occurrences_of_incident"),
        ),
        migrations.AddConstraint(
            model_name="occurrence",
            constraint=models.UniqueConstraint(
                condition=models.Q(("sequence__isnull", False)),
                fields=("node", "boot_id", "source", "sequence", "incident"),
                name="one_occurrence_a_log_record",
            ),
        ),
        migrations.AddConstraint(
            model_name="jobseen",
            constraint=models.UniqueConstraint(fields=("node", "job"), name="one_row_a_job_and_node"),
        ),
    ]
