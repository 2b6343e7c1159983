"""Every field of every model has its place: in the file, with the secrets, or left out with the reason."""

from django.apps import apps

from kcover_portal.encryption import fields_of
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.operate.settings_file import inventory, rows, transfer
from kcover_portal.operate.settings_file.document import Settings

ADDRESS_SHOWN = ("audit_stream.Sink",)  # save that of a webhook
OTHERS = ("auth", "contenttypes")  # of Django
MODELS = {model._meta.label: model for model in apps.get_models() if model._meta.app_label not in OTHERS}


def test_every_model_has_its_place() -> None:
    assert set(inventory.MODELS) == set(MODELS)


def test_every_field_has_its_place_once() -> None:
    for label, table in inventory.MODELS.items():
        if isinstance(table, inventory.Table):
            own = {field.name for field in (*MODELS[label]._meta.fields, *MODELS[label]._meta.many_to_many)}
            assert table.fields == own, label
            assert len(table.plain) + len(table.secret) + len(table.left) == len(own), label


def test_a_model_with_encrypted_fields_gives_them_with_the_secrets_only() -> None:
    for label, table in inventory.MODELS.items():
        encrypted = {field.name for field in fields_of(MODELS[label])}
        if isinstance(table, inventory.Table) and label not in ADDRESS_SHOWN:
            assert encrypted <= table.secret | set(table.left), label


def test_what_people_can_set_of_a_row_is_in_the_file() -> None:
    for section in (rows.DRIVER_ROWS, rows.SINK_ROWS, rows.CHANNEL_ROWS, rows.SOURCE_ROWS):
        table = inventory.MODELS[section.resource.model._meta.label]
        assert isinstance(table, inventory.Table)
        given = {column.field for column in section.resource.columns}
        assert given == (table.plain | table.secret) - {"name", "kind", "cluster"}


def test_what_people_can_set_of_a_cluster_is_in_the_file() -> None:
    table = inventory.MODELS["fleet.Cluster"]
    assert isinstance(table, inventory.Table)
    beside = {"name", "context", "in_cluster", "hold_down", "guards", "kubeconfig", "read_kubeconfig"}
    assert table.plain | table.secret == {*cluster_settings.SETTINGS, *beside}


def test_every_section_of_the_file_is_imported() -> None:
    assert {section.name for section in transfer.SECTIONS} == set(Settings.__struct_fields__)
