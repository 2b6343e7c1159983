from django.db import migrations


def fill(apps, schema_editor):
    """The owner of a token is the person who created it."""
    token, user = apps.get_model("accounts", "ApiToken"), apps.get_model("accounts", "User")
    people = dict(user.objects.values_list("username", "pk"))
    by_person = token.objects.filter(created_by__startswith="user:").values_list("created_by", flat=True).order_by()
    for created_by in set(by_person):
        if owner := people.get(created_by.removeprefix("user:")):
            token.objects.filter(created_by=created_by).update(owner=owner)


class Migration(migrations.Migration):
    """Apart from the column: PostgreSQL makes its index at the end of a transaction, which must not have changed rows."""

    dependencies = [("accounts", "0002_token_owner")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
