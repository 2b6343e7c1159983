from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("policies", "0002_policy_tries")]

    operations = [migrations.RenameField(model_name="policytry", old_name="incidents", new_name="pending")]
