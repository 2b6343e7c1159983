from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0008_past_boots")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="taken_until",
            field=models.DateTimeField(
                help_text="until when a call about it, outside of its own rescue, may be under way", null=True
            ),
        ),
    ]
