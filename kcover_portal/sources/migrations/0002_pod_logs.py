from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sources", "0001_initial"),
    ]

    operations = [
        migrations.AlterField(
            model_name="source",
            name="kind",
            field=models.CharField(
                choices=[
                    ("pods", "Pods"),
                    ("events", "Kubernetes Events"),
                    ("conditions", "Node conditions"),
                    ("alertmanager", "Alertmanager"),
                    ("cloudevents", "CloudEvents"),
                    ("loki", "Loki"),
                    ("gpud", "gpud"),
                    ("prometheus", "Prometheus"),
                    ("pod-logs", "Pod logs"),
                ],
                max_length=12,
            ),
        ),
    ]
