from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Divergence",
            fields=[
                ("anchor", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("anchored_at", models.DateTimeField()),
                ("at", models.DateTimeField()),
                ("because", models.JSONField(default=list, help_text="one reason for each chain")),
            ],
        ),
        migrations.CreateModel(
            name="Publication",
            fields=[
                ("place", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("published_at", models.DateTimeField(help_text="the last success", null=True)),
                (
                    "problem",
                    models.JSONField(default=dict, help_text="the reason of the present failure; {}: none"),
                ),
            ],
        ),
    ]
