from django.db import migrations, models

HELP = "namespaces whose PreflightReport objects count, separated by commas; *: all"


class Migration(migrations.Migration):
    """Clusters of earlier versions count the objects of all namespaces until an admin names some."""

    dependencies = [
        ("fleet", "0010_job_namespace"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="preflight_namespaces",
            field=models.CharField(blank=True, default="*", help_text=HELP, max_length=2000),
        ),
        migrations.AlterField(
            model_name="cluster",
            name="preflight_namespaces",
            field=models.CharField(blank=True, help_text=HELP, max_length=2000),
        ),
    ]
