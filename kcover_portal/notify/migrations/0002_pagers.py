import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("notify", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="channel",
            name="kind",
            field=models.CharField(
                choices=[
                    ("webhook", "Signed webhook"),
                    ("slack", "Slack, Mattermost, Rocket.Chat"),
                    ("teams", "Microsoft Teams"),
                    ("dingtalk", "DingTalk"),
                    ("feishu", "Feishu, Lark"),
                    ("wecom", "WeCom"),
                    ("pagerduty", "PagerDuty"),
                    ("mail", "E-mail"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="channel",
            name="secret",
            field=models.CharField(blank=True, help_text="signs what is sent, or is a pager's key", max_length=200),
        ),
        migrations.AddField(
            model_name="notice",
            name="action",
            field=models.CharField(
                blank=True, default="", help_text="for a pager: trigger, acknowledge or resolve", max_length=11
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="notice",
            name="page",
            field=models.CharField(
                blank=True, default="", help_text="for a pager: what it tells repetitions by", max_length=160
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="notice",
            name="told_at",
            field=models.DateTimeField(help_text="for a pager: when it took this event", null=True),
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(help_text="kcover.paging: incident-41 for example", max_length=160)),
                ("page", models.CharField(max_length=160)),
                ("opened_at", models.DateTimeField()),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="alerts", to="notify.channel"
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(fields=["channel", "page"], name="alerts_of_a_page"),
        ),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.UniqueConstraint(fields=("channel", "name"), name="one_alert_a_channel"),
        ),
    ]
