import uuid

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Node",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=253)),
                ("uid", models.CharField(blank=True, max_length=64)),
                ("in_cluster", models.BooleanField(default=False, help_text="true if the cluster lists the node")),
                ("pool", models.CharField(blank=True, max_length=120)),
                ("model", models.CharField(blank=True, max_length=120)),
                ("labels", models.JSONField(default=dict)),
                ("taints", models.JSONField(default=list)),
                ("conditions", models.JSONField(default=dict)),
                ("marks", models.JSONField(default=dict, help_text="the kcover.io/rescue annotation, parsed")),
                ("unschedulable", models.BooleanField(default=False)),
                ("ready", models.BooleanField(default=False)),
                ("ready_since", models.DateTimeField(null=True)),
                ("boot_id", models.CharField(blank=True, max_length=64)),
                (
                    "past_boots",
                    models.JSONField(default=list, help_text="ids of earlier boots, the latest first"),
                ),
                (
                    "gpus",
                    models.PositiveIntegerField(default=0, help_text="GPU capacity reported by the device plugin"),
                ),
                ("kubelet", models.CharField(blank=True, max_length=60)),
                ("address", models.CharField(blank=True, max_length=64)),
                ("driver", models.CharField(blank=True, max_length=60)),
                ("kernel", models.CharField(blank=True, max_length=120)),
                ("created_at", models.DateTimeField()),
                ("synced_at", models.DateTimeField(null=True)),
                ("gone_at", models.DateTimeField(help_text="when the node disappeared from the cluster", null=True)),
                (
                    "locked_by",
                    models.CharField(
                        blank=True,
                        help_text="holder of the node lock, if not its own rescue",
                        max_length=60,
                    ),
                ),
                ("locked_until", models.DateTimeField(help_text="when that lock expires", null=True)),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="Cluster",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=100, unique=True)),
                ("kubeconfig", models.TextField(blank=True)),
                ("context", models.CharField(blank=True, max_length=253)),
                ("in_cluster", models.BooleanField(default=False)),
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
                ("pause_reason", models.CharField(blank=True, max_length=500)),
                (
                    "decision_mode",
                    models.CharField(
                        choices=[("policies", "Policies"), ("external", "External system"), ("both", "Both")],
                        default="both",
                        max_length=10,
                    ),
                ),
                (
                    "drills",
                    models.CharField(choices=[("act", "Act"), ("record", "Record only")], default="act", max_length=10),
                ),
                (
                    "reboot",
                    models.CharField(
                        choices=[("auto", "Agent if one reports, otherwise job"), ("agent", "Agent"), ("job", "Job")],
                        default="auto",
                        max_length=10,
                    ),
                ),
                ("job_image", models.CharField(default="docker.io/library/busybox:1.36", max_length=300)),
                ("job_namespace", models.CharField(default="kcover-system", max_length=63)),
                ("event_namespace", models.CharField(default="kce-rescue-system", max_length=63)),
                (
                    "hold_down",
                    models.PositiveIntegerField(
                        default=30, help_text="seconds without a fault before a node is healthy"
                    ),
                ),
                (
                    "guards",
                    models.JSONField(
                        default=dict,
                        help_text="settings that differ from the guards' defaults (kcover.decisions.guards)",
                    ),
                ),
                (
                    "decision_url",
                    models.URLField(blank=True, help_text="URL of the external decision system", max_length=500),
                ),
                (
                    "decision_secret",
                    models.CharField(blank=True, help_text="signs its requests and responses", max_length=200),
                ),
                (
                    "decision_timeout",
                    models.PositiveSmallIntegerField(default=5, help_text="seconds to wait for its response"),
                ),
                (
                    "decision_fallback",
                    models.CharField(
                        choices=[("policies", "Policies"), ("hold", "Wait for a person")],
                        default="policies",
                        help_text="who decides if it is silent",
                        max_length=10,
                    ),
                ),
                ("ready_within", models.PositiveIntegerField(default=1800, help_text="seconds a reboot may take")),
                ("autopilot_labels", models.BooleanField(default=False, help_text="nodes carry Autopilot's labels")),
                (
                    "preflight_within",
                    models.PositiveIntegerField(
                        default=1800, help_text="seconds from a job's first preflight report to its last"
                    ),
                ),
                (
                    "storage_class",
                    models.CharField(
                        blank=True,
                        help_text="storage class of the check pvc; empty: the cluster's default",
                        max_length=253,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\\Z",
                                "Must be the name of a storage class (a-z, 0-9, '-' and '.').",
                            )
                        ],
                    ),
                ),
                ("created_at", models.DateTimeField()),
                (
                    "decision_change",
                    models.CharField(
                        blank=True,
                        help_text="id of the last change that affects decisions in this cluster",
                        max_length=32,
                    ),
                ),
                (
                    "heard_since",
                    models.DateTimeField(help_text="end of its API server's last period of silence", null=True),
                ),
                (
                    "watched_at",
                    models.DateTimeField(help_text="when the cluster last answered the watch", null=True),
                ),
                ("watch_error", models.CharField(blank=True, max_length=500)),
                ("version", models.CharField(blank=True, max_length=40)),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="Agent",
            fields=[
                (
                    "node",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="agent",
                        serialize=False,
                        to="fleet.node",
                    ),
                ),
                ("seen_at", models.DateTimeField()),
                ("boot_id", models.CharField(max_length=64)),
                ("boot_seen_at", models.DateTimeField(help_text="first report with this boot id")),
                ("version", models.CharField(blank=True, max_length=40)),
                ("skew", models.FloatField(default=0, help_text="seconds the agent's clock is ahead of ours")),
                (
                    "recent",
                    models.CharField(
                        blank=True, help_text="hashes of the last batch ids, to recognize repeats", max_length=96
                    ),
                ),
                (
                    "inventory_digest",
                    models.CharField(blank=True, help_text="digest of the last report's inventory", max_length=16),
                ),
                (
                    "checks_digest",
                    models.CharField(blank=True, help_text="digest of the last report's check results", max_length=16),
                ),
            ],
        ),
        migrations.AddField(
            model_name="node",
            name="cluster",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="nodes", to="fleet.cluster"
            ),
        ),
        migrations.CreateModel(
            name="Command",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                (
                    "key",
                    models.CharField(
                        help_text="key of the request; repeating it returns this command",
                        max_length=100,
                        unique=True,
                    ),
                ),
                (
                    "requester_kind",
                    models.CharField(
                        blank=True, choices=[("rescue", "Rescue"), ("check_run", "Check run")], max_length=20
                    ),
                ),
                ("requester_id", models.PositiveBigIntegerField(help_text="id of the rescue or check run", null=True)),
                (
                    "requester_step",
                    models.PositiveIntegerField(help_text="for a rescue: the index of its step", null=True),
                ),
                ("kind", models.CharField(max_length=20)),
                ("args", models.JSONField(default=dict)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("offered", "Offered"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("refused", "Refused"),
                            ("expired", "Expired"),
                        ],
                        default="offered",
                        max_length=10,
                    ),
                ),
                ("message", models.CharField(blank=True, help_text="of the agent", max_length=1000)),
                (
                    "because",
                    models.JSONField(
                        default=dict,
                        help_text="a Reason: why the portal closed it, and what the agent answered after that; {}: none",
                    ),
                ),
                ("output", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="commands", to="fleet.node"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Gpu",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("index", models.PositiveSmallIntegerField()),
                ("uuid", models.CharField(max_length=96)),
                ("pci", models.CharField(blank=True, max_length=32)),
                ("model", models.CharField(blank=True, max_length=120)),
                ("serial", models.CharField(blank=True, max_length=60)),
                ("seen_at", models.DateTimeField()),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="devices", to="fleet.node"
                    ),
                ),
            ],
            options={
                "ordering": ("node_id", "index"),
            },
        ),
        migrations.CreateModel(
            name="Maintenance",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pool", models.CharField(blank=True, max_length=120)),
                ("node", models.CharField(blank=True, max_length=253)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("reason", models.CharField(max_length=500)),
                ("created_by", models.CharField(max_length=200)),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="maintenance",
                        to="fleet.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ("starts_at", "pk"),
            },
        ),
        migrations.CreateModel(
            name="CheckChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64)),
                ("device", models.CharField(blank=True, max_length=128)),
                ("before", models.CharField(blank=True, help_text="empty for the first result", max_length=10)),
                ("status", models.CharField(max_length=10)),
                ("message", models.CharField(blank=True, max_length=1000)),
                ("at", models.DateTimeField(db_index=True)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="check_changes", to="fleet.node"
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
                "indexes": [models.Index(fields=["node", "-id"], name="check_changes_of_node")],
            },
        ),
        migrations.CreateModel(
            name="CheckResult",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64)),
                ("device", models.CharField(blank=True, max_length=128)),
                ("status", models.CharField(max_length=10)),
                ("value", models.FloatField(null=True)),
                ("unit", models.CharField(blank=True, max_length=32)),
                ("message", models.CharField(blank=True, max_length=1000)),
                ("seen_at", models.DateTimeField()),
                ("changed_at", models.DateTimeField(help_text="when the status last changed")),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="checks", to="fleet.node"
                    ),
                ),
            ],
            options={
                "ordering": ("node_id", "name", "device"),
                "constraints": [models.UniqueConstraint(fields=("node", "name", "device"), name="one_result_a_check")],
            },
        ),
        migrations.AddConstraint(
            model_name="node",
            constraint=models.UniqueConstraint(fields=("cluster", "name"), name="one_node_a_name"),
        ),
        migrations.AddIndex(
            model_name="command",
            index=models.Index(condition=models.Q(("state", "offered")), fields=["node"], name="commands_on_offer"),
        ),
        migrations.AddIndex(
            model_name="command",
            index=models.Index(fields=["requester_kind", "requester_id"], name="commands_of_requester"),
        ),
        migrations.AddConstraint(
            model_name="gpu",
            constraint=models.UniqueConstraint(fields=("node", "uuid"), name="one_gpu_a_uuid"),
        ),
        migrations.AddConstraint(
            model_name="maintenance",
            constraint=models.CheckConstraint(
                condition=models.Q(("ends_at__gt", models.F("starts_at"))), name="window_has_a_length"
            ),
        ),
    ]
