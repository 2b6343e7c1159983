from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("machines", "0002_webhook_drivers"),
    ]

    operations = [
        migrations.AlterField(
            model_name="driver",
            name="kind",
            field=models.CharField(
                choices=[
                    ("redfish", "Redfish"),
                    ("webhook", "Webhook"),
                    ("nvsentinel", "NVSentinel"),
                    ("clusterapi", "Cluster API"),
                    ("karpenter", "Karpenter"),
                ],
                max_length=12,
            ),
        ),
    ]
