from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0003_encrypted_secrets")]

    operations = [
        migrations.AddField(
            "cluster",
            "hand_approval",
            models.CharField(
                choices=[("mode", "In mode approve"), ("always", "Always"), ("never", "Never")],
                default="mode",
                help_text="when actions by hand that take work away need another person's approval",
                max_length=10,
            ),
        ),
        migrations.AddField(
            "cluster",
            "second_admin",
            models.BooleanField(default=False, help_text="another admin must confirm what loosens a limit"),
        ),
    ]
