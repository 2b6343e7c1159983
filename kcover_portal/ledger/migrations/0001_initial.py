from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Chain",
            fields=[
                ("cluster", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("sequence", models.BigIntegerField(default=0)),
                ("digest", models.CharField(default="", max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name="Entry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=100)),
                ("sequence", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("actor", models.CharField(max_length=200)),
                ("verb", models.CharField(max_length=60)),
                (
                    "subject",
                    models.CharField(db_index=True, help_text="for people; programs read data", max_length=400),
                ),
                ("node", models.CharField(blank=True, max_length=253)),
                ("rescue", models.BigIntegerField(null=True)),
                ("data", models.JSONField(default=dict)),
                ("previous", models.CharField(max_length=64)),
                ("digest", models.CharField(max_length=64)),
            ],
            options={
                "ordering": ("-id",),
                "indexes": [
                    models.Index(fields=["cluster", "node", "-id"], name="entry_of_node"),
                    models.Index(fields=["rescue", "id"], name="entry_of_rescue"),
                ],
                "constraints": [models.UniqueConstraint(fields=("cluster", "sequence"), name="one_entry_per_sequence")],
            },
        ),
    ]
