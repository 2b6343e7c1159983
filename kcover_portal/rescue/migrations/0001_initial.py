import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("fleet", "0001_initial"),
        ("incidents", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Decision",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "answer",
                    models.CharField(
                        choices=[
                            ("rescue", "Rescue"),
                            ("approve", "Needs approval"),
                            ("shadow", "Shadow"),
                            ("hold", "Blocked"),
                            ("none", "No action"),
                        ],
                        max_length=10,
                    ),
                ),
                ("mode", models.CharField(max_length=10)),
                ("rule", models.CharField(blank=True, max_length=300)),
                ("policy", models.CharField(blank=True, max_length=253)),
                ("revision", models.PositiveIntegerField(null=True)),
                ("because", models.JSONField(default=list)),
                ("tried", models.JSONField(default=list)),
                ("steps", models.JSONField(default=list)),
                ("facts", models.JSONField(default=dict)),
                ("count", models.PositiveIntegerField(default=1)),
                ("at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="decisions", to="fleet.cluster"
                    ),
                ),
                (
                    "incident",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="decisions",
                        to="incidents.incident",
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="decisions", to="fleet.node"
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Rescue",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "node_uid",
                    models.CharField(blank=True, help_text="uid of its machine when it was opened", max_length=64),
                ),
                (
                    "origin",
                    models.CharField(
                        choices=[("policy", "Policy"), ("api", "Decision system"), ("manual", "Operator")],
                        max_length=10,
                    ),
                ),
                ("requested_by", models.CharField(max_length=200)),
                (
                    "requester_kind",
                    models.CharField(
                        choices=[
                            ("person", "A person"),
                            ("token", "A program"),
                            ("policy", "A policy"),
                            ("system", "The portal"),
                            ("external", "A decision system"),
                        ],
                        max_length=10,
                    ),
                ),
                ("reason", models.CharField(blank=True, help_text="a person's own words", max_length=500)),
                (
                    "opened_because",
                    models.JSONField(default=dict, help_text="a Reason: why no person but the portal opened it"),
                ),
                (
                    "fault_kind",
                    models.CharField(blank=True, help_text="kind of its fault: xid", max_length=12),
                ),
                ("fault_code", models.CharField(blank=True, help_text="code of its fault: 62", max_length=64)),
                ("rule", models.CharField(blank=True, max_length=300)),
                ("policy", models.CharField(blank=True, max_length=253)),
                ("revision", models.PositiveIntegerField(null=True)),
                ("plan_hash", models.CharField(max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("held", "On hold"),
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("succeeded", "Succeeded"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="running",
                        max_length=10,
                    ),
                ),
                (
                    "outcome",
                    models.CharField(blank=True, help_text="healed, isolated, escalated, done, ...", max_length=20),
                ),
                (
                    "verified",
                    models.BooleanField(help_text="the node was proved healthy; null: not tried", null=True),
                ),
                (
                    "because",
                    models.JSONField(default=dict, help_text="the reason why it waits, is held or ended so; {}: none"),
                ),
                ("needs_human", models.BooleanField(default=False)),
                (
                    "hold",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "Nothing"),
                            ("approval", "Approval"),
                            ("step", "A failed step"),
                            ("external", "Another system"),
                            ("guard", "A guard"),
                        ],
                        help_text="what it waits for",
                        max_length=10,
                    ),
                ),
                (
                    "gate",
                    models.PositiveSmallIntegerField(
                        help_text="index of the first step that needs an approval", null=True
                    ),
                ),
                ("approvers", models.PositiveSmallIntegerField(default=1, help_text="how many people must approve")),
                (
                    "approval_seconds",
                    models.PositiveIntegerField(default=86400, help_text="how long a request or approval is valid"),
                ),
                ("expires_at", models.DateTimeField(help_text="when a request or an approval expires", null=True)),
                (
                    "overrides",
                    models.JSONField(default=dict, help_text="guards that a named person may pass over: guard to name"),
                ),
                (
                    "passed_over",
                    models.JSONField(default=list, help_text="overridden guards: when, before which step, and why"),
                ),
                ("request", models.JSONField(default=dict, help_text="the decision system's request, as received")),
                (
                    "marks",
                    models.JSONField(default=dict, help_text="what it changed on the node and has not reverted"),
                ),
                ("opened_at", models.DateTimeField()),
                (
                    "isolating_at",
                    models.DateTimeField(help_text="when the guards last allowed the isolation", null=True),
                ),
                ("closed_at", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(help_text="when a worker continues it", null=True)),
                (
                    "calls_begun",
                    models.PositiveIntegerField(default=0, help_text="calls that were made, or may have been"),
                ),
                ("token", models.PositiveBigIntegerField(default=0, help_text="fencing token of the last lease")),
                ("lease_until", models.DateTimeField(null=True)),
                (
                    "key",
                    models.CharField(
                        help_text="idempotency key of the request", max_length=200, null=True, unique=True
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rescues", to="fleet.cluster"
                    ),
                ),
                (
                    "decision",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="rescues",
                        to="rescue.decision",
                    ),
                ),
                ("incidents", models.ManyToManyField(related_name="rescues", to="incidents.incident")),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rescues", to="fleet.node"
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="JobRestart",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.CharField(max_length=63)),
                ("job", models.CharField(max_length=253)),
                ("at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="job_restarts", to="fleet.cluster"
                    ),
                ),
                (
                    "rescue",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="job_restarts",
                        to="rescue.rescue",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Assignment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "state",
                    models.CharField(
                        choices=[("reserved", "Reserved"), ("active", "In service"), ("released", "Released")],
                        default="reserved",
                        max_length=10,
                    ),
                ),
                (
                    "marks",
                    models.JSONField(default=dict, help_text="what it changed on the standby and has not reverted"),
                ),
                ("because", models.JSONField(default=dict, help_text="the reason why it was chosen or given back")),
                ("reserved_at", models.DateTimeField()),
                ("activated_at", models.DateTimeField(null=True)),
                ("released_at", models.DateTimeField(null=True)),
                (
                    "origin",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="stood_in_for", to="fleet.node"
                    ),
                ),
                (
                    "spare",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="stands_in", to="fleet.node"
                    ),
                ),
                (
                    "rescue",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="assignments", to="rescue.rescue"
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Approval",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("step", models.PositiveSmallIntegerField(default=0)),
                ("node", models.CharField(blank=True, max_length=253)),
                ("node_uid", models.CharField(blank=True, max_length=64)),
                ("plan_hash", models.CharField(max_length=64)),
                ("approved", models.BooleanField()),
                ("by", models.CharField(max_length=200)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("via", models.CharField(blank=True, help_text="console, rest or link", max_length=10)),
                ("at", models.DateTimeField()),
                (
                    "rescue",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="approvals", to="rescue.rescue"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("index", models.PositiveSmallIntegerField()),
                ("name", models.CharField(max_length=30)),
                ("args", models.JSONField(default=dict)),
                (
                    "round",
                    models.PositiveSmallIntegerField(default=1, help_text="2: repeated because the fault came back"),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("running", "Running"),
                            ("waiting", "Waiting"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("skipped", "Skipped"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="pending",
                        max_length=10,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0, help_text="reserved before each call")),
                (
                    "failures",
                    models.PositiveIntegerField(default=0, help_text="attempts in a row that asked to be repeated"),
                ),
                ("progress", models.JSONField(default=dict)),
                (
                    "because",
                    models.JSONField(default=dict, help_text="the reason why it waits, stopped or ended so; {}: none"),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "withdraw_at",
                    models.DateTimeField(help_text="when its request is withdrawn next; null: it is not", null=True),
                ),
                (
                    "rescue",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="steps", to="rescue.rescue"
                    ),
                ),
            ],
            options={
                "ordering": ("rescue_id", "index"),
            },
        ),
        migrations.AddIndex(
            model_name="decision",
            index=models.Index(fields=["node", "-id"], name="decisions_of_node"),
        ),
        migrations.AddIndex(
            model_name="rescue",
            index=models.Index(
                condition=models.Q(("state__in", ("waiting", "running"))), fields=["due_at"], name="rescues_due"
            ),
        ),
        migrations.AddIndex(
            model_name="rescue",
            index=models.Index(fields=["cluster", "state", "-id"], name="rescues_of_cluster"),
        ),
        migrations.AddConstraint(
            model_name="rescue",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ("held", "waiting", "running"))),
                fields=("node",),
                name="one_open_rescue_a_node",
            ),
        ),
        migrations.AddConstraint(
            model_name="jobrestart",
            constraint=models.UniqueConstraint(fields=("cluster", "namespace", "job"), name="one_restart_a_job"),
        ),
        migrations.AddConstraint(
            model_name="assignment",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ("reserved", "active"))), fields=("spare",), name="one_promise_a_spare"
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.UniqueConstraint(fields=("rescue", "step", "plan_hash", "by"), name="one_vote_a_person"),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                condition=models.Q(("withdraw_at__isnull", False)), fields=["withdraw_at"], name="steps_to_withdraw"
            ),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.UniqueConstraint(fields=("rescue", "index"), name="one_step_a_place"),
        ),
    ]
