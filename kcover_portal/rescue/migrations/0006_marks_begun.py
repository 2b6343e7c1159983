from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rescue", "0005_judge_decisions")]

    operations = [
        migrations.AddField(
            model_name=model,
            name="marks_begun",
            field=models.JSONField(db_default={}, default=dict, help_text="marks of a write that has no answer yet"),
        )
        for model in ("assignment", "rescue")
    ]
