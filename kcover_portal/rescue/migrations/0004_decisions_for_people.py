from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rescue", "0003_job_kind")]

    operations = [
        migrations.AddField(
            model_name="decision",
            name="needs_person",
            field=models.BooleanField(
                db_default=False, default=False, help_text="it holds for a reason that only a person can resolve"
            ),
        ),
    ]
