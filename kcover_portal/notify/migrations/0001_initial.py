import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("fleet", "0001_initial"),
        ("rescue", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Cursor",
            fields=[
                ("name", models.CharField(max_length=120, primary_key=True, serialize=False)),
                ("position", models.BigIntegerField(default=0)),
                (
                    "gaps",
                    models.JSONField(default=dict, help_text="ids that did not exist yet: id to when that was noticed"),
                ),
                ("at", models.DateTimeField(help_text="when it was last moved")),
            ],
        ),
        migrations.CreateModel(
            name="Channel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(help_text="the name that policies use", max_length=63, unique=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("webhook", "Signed webhook"),
                            ("slack", "Slack, Mattermost, Rocket.Chat"),
                            ("teams", "Microsoft Teams"),
                            ("dingtalk", "DingTalk"),
                            ("feishu", "Feishu, Lark"),
                            ("wecom", "WeCom"),
                            ("pagerduty", "PagerDuty"),
                            ("opsgenie", "Opsgenie"),
                            ("mail", "E-mail"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "url",
                    models.CharField(
                        blank=True, help_text="a secret: most services put their key into it", max_length=1000
                    ),
                ),
                (
                    "secret",
                    models.CharField(blank=True, help_text="signs what is sent, or is a pager's key", max_length=200),
                ),
                ("recipients", models.JSONField(default=list, help_text="addresses of e-mail")),
                ("language", models.CharField(default="en", max_length=10)),
                (
                    "batching",
                    models.PositiveIntegerField(
                        default=10, help_text="seconds during which events are batched into one message"
                    ),
                ),
                (
                    "min_interval",
                    models.PositiveIntegerField(default=60, help_text="least seconds between two messages"),
                ),
                (
                    "remind",
                    models.PositiveIntegerField(
                        help_text="seconds until a reminder of a pending question; null: half of its time; 0: never",
                        null=True,
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                ("created_by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField()),
                ("tried_at", models.DateTimeField(help_text="when the last attempt to send began", null=True)),
                ("sent_at", models.DateTimeField(help_text="when a message last arrived", null=True)),
                (
                    "trouble",
                    models.JSONField(
                        default=dict, help_text="a Reason: why the last attempt failed; empty: it did not"
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        help_text="reaches only this person: questions carry a link that answers in their name",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(help_text="the channel's name; the channel may be deleted", max_length=63)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "Waiting"),
                            ("sending", "Sending"),
                            ("sent", "Sent"),
                            ("failed", "Not delivered"),
                            ("dropped", "Dropped"),
                        ],
                        default="pending",
                        max_length=10,
                    ),
                ),
                ("batching", models.BooleanField(default=False)),
                ("test", models.BooleanField(default=False)),
                (
                    "key",
                    models.UUIDField(
                        help_text="the same for every attempt, so that receivers recognise a repetition", unique=True
                    ),
                ),
                ("omitted", models.PositiveIntegerField(default=0, help_text="events beyond those that are kept")),
                ("subject", models.CharField(blank=True, max_length=200)),
                (
                    "text",
                    models.TextField(blank=True, help_text="as sent, without links that answer in a person's name"),
                ),
                ("attempts", models.PositiveIntegerField(default=0, help_text="reserved before each attempt")),
                ("because", models.JSONField(default=dict, help_text="a Reason: the other side's last answer")),
                ("opened_at", models.DateTimeField()),
                ("due_at", models.DateTimeField(null=True)),
                ("closed_at", models.DateTimeField(null=True)),
                ("token", models.PositiveBigIntegerField(default=0, help_text="fencing token of the last lease")),
                ("lease_until", models.DateTimeField(null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="deliveries",
                        to="notify.channel",
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=160)),
                ("kind", models.CharField(max_length=20)),
                ("cluster", models.CharField(blank=True, max_length=100)),
                ("node", models.CharField(blank=True, max_length=253)),
                ("what", models.CharField(blank=True, max_length=100)),
                ("severity", models.CharField(blank=True, max_length=12)),
                ("record", models.BigIntegerField(null=True)),
                ("because", models.JSONField(default=dict, help_text="a Reason: why it happened; empty: unknown")),
                ("drill", models.BooleanField(default=False)),
                ("nodes", models.PositiveIntegerField(default=0)),
                ("again", models.BooleanField(default=False, help_text="a reminder of an earlier event")),
                ("at", models.DateTimeField()),
                (
                    "action",
                    models.CharField(
                        blank=True, help_text="for a pager: trigger, acknowledge or resolve", max_length=11
                    ),
                ),
                (
                    "page",
                    models.CharField(
                        blank=True, help_text="for a pager: by which it recognises repetitions", max_length=160
                    ),
                ),
                ("told_at", models.DateTimeField(help_text="for a pager: when it accepted this event", null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="notify.channel"
                    ),
                ),
                (
                    "delivery",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="notices", to="notify.delivery"
                    ),
                ),
                (
                    "step",
                    models.ForeignKey(
                        help_text="the step that waits for this notice",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="rescue.step",
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="Route",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kinds", models.JSONField(default=list)),
                (
                    "least",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("info", "Info"),
                            ("warning", "Warning"),
                            ("degraded", "Degraded"),
                            ("fatal", "Fatal"),
                        ],
                        help_text="incidents from here on",
                        max_length=10,
                    ),
                ),
                ("created_by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField()),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="routes", to="notify.channel"
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="fleet.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ("channel__name", "pk"),
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(help_text="kcover.notify.pager: incident-41 for example", max_length=160)),
                ("page", models.CharField(max_length=160)),
                ("opened_at", models.DateTimeField()),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="alerts", to="notify.channel"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["channel", "page"], name="alerts_of_a_page")],
                "constraints": [models.UniqueConstraint(fields=("channel", "name"), name="one_alert_a_channel")],
            },
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state__in", ("pending", "sending"))), fields=["due_at"], name="deliveries_due"
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["closed_at"], name="deliveries_closed"),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                condition=models.Q(("batching", True)), fields=("channel",), name="one_batching_delivery_per_channel"
            ),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(fields=["record", "kind"], name="notices_of_a_record"),
        ),
        migrations.AddConstraint(
            model_name="notice",
            constraint=models.UniqueConstraint(fields=("channel", "key"), name="one_notice_per_event"),
        ),
    ]
