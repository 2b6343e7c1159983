from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Answered",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("actor", models.CharField(max_length=200)),
                ("key", models.CharField(max_length=200)),
                ("request", models.CharField(help_text="SHA-256 of method, address and body", max_length=64)),
                ("status", models.PositiveSmallIntegerField()),
                ("body", models.JSONField()),
                ("at", models.DateTimeField(db_index=True)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("actor", "key"), name="one_answer_a_key")],
            },
        ),
    ]
