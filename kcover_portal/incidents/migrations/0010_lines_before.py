from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("incidents", "0009_usual_order")]

    operations = [
        migrations.AddField(
            model_name="occurrence",
            name="lines_before",
            field=models.TextField(
                blank=True, db_default="", default="", help_text="the kernel's lines before it, as the agent told them"
            ),
        ),
    ]
