"""All encrypted values of the database: their keys, the unreadable ones, and their rotation."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from django.apps import apps
from django.db import models, transaction

from kcover_portal.encryption import envelope, fields, keyring

BATCH = 500  # rows read at a time


@dataclass(slots=True)
class Rotation:
    """The numbers of values that were encrypted again, were up to date, and could not be read."""

    changed: int = 0
    unchanged: int = 0
    unreadable: list[envelope.SecretUnreadable] = field(default_factory=list)


def models_with_secrets() -> list[type[models.Model]]:
    """Returns the models that have encrypted fields."""
    return [model for model in apps.get_models() if fields.fields_of(model)]


def rotate(chosen: Iterable[type[models.Model]]) -> Rotation:
    """Encrypts every value of the models with the first key; safe at any time, and while the portal runs.

    A value that was changed meanwhile is left to its writer. Raises KeysUnusable before any change.
    """
    for ring in keyring.Ring:
        keyring.load(ring)
    done = Rotation()
    for row, column in _values(chosen):
        _encrypt_again(row, column, done)
    return done


def move_to_engine(
    chosen: Iterable[type[models.Model]],
    *,
    leave: Callable[[models.Model], bool] = lambda row: False,
    note: Callable[[models.Model, str], None] = lambda row, column: None,
) -> Rotation:
    """Encrypts what the other processes stored for the engine with its key; nothing in a process without that key.

    ``leave``: returns True for a row that keeps its present key. It may raise SecretUnreadable. ``note``: is called
    with the row and the column of each value, in the transaction that writes it.
    Plain values are left to ``rotate``: nobody uses them, and a person decides whether they are genuine.
    """
    done = Rotation()
    if not keyring.is_configured(keyring.Ring.ENGINE):
        return done
    for row, column in _values(chosen):
        key = envelope.key_of(fields.stored(row, column.attname))
        if column.engine_only and key and keyring.ring_of(key) == keyring.Ring.SHARED:
            try:
                if leave(row):
                    continue
            except envelope.SecretUnreadable as unreadable:
                done.unreadable.append(unreadable)
                continue
            with transaction.atomic():
                before = done.changed
                _encrypt_again(row, column, done)
                if done.changed > before:
                    note(row, column.attname)
    return done


def _encrypt_again(row: models.Model, column: fields.EncryptedTextField, done: Rotation) -> None:
    before = fields.stored(row, column.attname)
    try:
        after = envelope.reseal(before, column.place(row))
    except envelope.SecretUnreadable as unreadable:
        done.unreadable.append(unreadable)
        return
    if after == before:
        done.unchanged += 1
        return
    rows = type(row)._default_manager.filter(pk=row.pk, **{column.attname: fields.StoredValue(before)})
    done.changed += rows.update(**{column.attname: fields.StoredValue(after)})


def unreadable() -> list[envelope.SecretUnreadable]:
    """Returns every secret that cannot be read, with the reason."""
    found = []
    for row, column in _values(models_with_secrets()):
        try:
            getattr(row, column.attname)
        except envelope.SecretUnreadable as error:
            found.append(error)
    return found


def counts() -> dict[str, int]:
    """Returns the number of values by the id of their key; "" counts those that are not encrypted."""
    by_key: dict[str, int] = {}
    for row, column in _values(models_with_secrets()):
        key = envelope.key_of(fields.stored(row, column.attname))
        by_key[key] = by_key.get(key, 0) + 1
    return by_key


def _values(chosen: Iterable[type[models.Model]]) -> Iterator[tuple[models.Model, fields.EncryptedTextField]]:
    """Each row and each of its encrypted fields that has a value."""
    for model in chosen:
        encrypted = fields.fields_of(model)
        names = {"pk", *(name for column in encrypted for name in (column.attname, column.bound_to))}
        rows = model._default_manager.all()
        if not any(column.sent_to for column in encrypted):  # that attribute may need any column
            rows = rows.only(*names)
        for row in rows.order_by("pk").iterator(BATCH):
            yield from ((row, column) for column in encrypted if fields.is_set(row, column.attname))
