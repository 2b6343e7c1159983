from django.db import migrations

from kcover_portal.accounts.models import SESSION_DIGEST_LENGTH, Session


def digest(apps, schema_editor):
    """Stores the digest of each key in its place, so that nobody is signed out."""
    rows = apps.get_model("accounts", "Session").objects
    for key in list(rows.values_list("session_key", flat=True)):
        if len(key) < SESSION_DIGEST_LENGTH:  # a key of Django has 32 characters
            rows.filter(session_key=key).update(session_key=Session.digest_of(key))


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_home_page"),
    ]

    operations = [
        # An older portal finds no session by its key, so people sign in again after a rollback.
        migrations.RunPython(digest, migrations.RunPython.noop),
    ]
