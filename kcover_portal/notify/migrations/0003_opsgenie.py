from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("notify", "0002_pagers")]

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
                    ("opsgenie", "Opsgenie"),
                    ("mail", "E-mail"),
                ],
                max_length=10,
            ),
        ),
    ]
