from typing import Any

from django.db import migrations, models


class AddIndexBesideWriters(migrations.AddIndex):
    """Adds the index without blocking writers where the database can: reports are stored meanwhile.

    A build that was interrupted leaves an invalid index, so the next one begins anew.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(self.index.name)}")
            schema_editor.add_index(model, self.index, concurrently=True)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)
            return
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.remove_index(model, self.index, concurrently=True)


class Migration(migrations.Migration):
    atomic = False  # an index cannot be built beside writers inside a transaction

    dependencies = [
        ("fleet", "0017_isolate_before_approval"),
        ("incidents", "0003_flapping"),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name="incident",
            index=models.Index(fields=["cluster", "last_at"], name="recent_incidents"),
        ),
    ]
