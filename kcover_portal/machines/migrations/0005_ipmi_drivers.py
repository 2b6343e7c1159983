from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("machines", "0004_engine_secrets"),
    ]

    operations = [
        migrations.AlterField(
            model_name="driver",
            name="kind",
            field=models.CharField(
                choices=[
                    ("redfish", "Redfish"),
                    ("ipmi", "IPMI"),
                    ("webhook", "Webhook"),
                    ("nvsentinel", "NVSentinel"),
                    ("clusterapi", "Cluster API"),
                    ("karpenter", "Karpenter"),
                ],
                max_length=12,
            ),
        ),
    ]
