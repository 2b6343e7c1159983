"""The model field of a secret. It decrypts when the attribute is read, so rows load without any key."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core import checks
from django.db import models
from django.db.models.query_utils import DeferredAttribute

from kcover_portal.encryption import envelope, keyring


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value as it is in the database. It is not text, so nobody sends it by mistake."""

    text: str

    def __repr__(self) -> str:
        return "StoredValue(…)"


_as_stored: ContextVar[bool] = ContextVar("as_stored", default=False)


class EncryptedAttribute(DeferredAttribute):
    """Decrypts the stored value at each read; ``envelope`` remembers the result. Raises SecretUnreadable."""

    field: "EncryptedTextField"

    def __get__(self, instance: models.Model | None, cls: Any = None) -> Any:
        value = super().__get__(instance, cls)
        if instance is None or not isinstance(value, StoredValue) or _as_stored.get():
            return value
        return envelope.unseal(value.text, self.field.place(instance))

    def __set__(self, instance: models.Model, value: object) -> None:
        instance.__dict__[self.field.attname] = value


if TYPE_CHECKING:
    TextField = models.TextField[str, str]
else:
    TextField = models.TextField


class EncryptedTextField(TextField):
    """A text that is encrypted in the database and bound to its row; "" stays "".

    ``bound_to``: the attribute that identifies the row. It must be set before the row is first saved and never change,
    because a value is encrypted for it: a name, or the id of a related row (``user_id``), not the row's own id.

    ``engine_only``: the processes that people and agents reach do not need it. It is encrypted with the engine's key if
    there is one (``keyring.Ring``). These processes can store a value, with the shared key: a worker encrypts it again.

    ``sent_to``: the attribute that says where such a value is sent, as text. The engine's key binds the value to it, so
    whoever changes the attribute must give the value again.

    Queries can only ask whether it is set. ``update`` takes only "", because it knows no row; save the row instead.
    """

    descriptor_class = EncryptedAttribute

    def __init__(
        self, *args: Any, bound_to: str = "", engine_only: bool = False, sent_to: str = "", **kwargs: Any
    ) -> None:
        self.bound_to = bound_to
        self.engine_only = engine_only
        self.sent_to = sent_to
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, path, args, kwargs = super().deconstruct()
        own = {"bound_to": self.bound_to, "engine_only": self.engine_only, "sent_to": self.sent_to}
        return name, path, args, kwargs | {key: value for key, value in own.items() if value or key == "bound_to"}

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """A system check: the model must be able to read a row again without decrypting it."""
        found = super().check(**kwargs)
        if not issubclass(self.model, ModelWithSecrets):
            found.append(
                checks.Error(f"{self} requires that its model derives from ModelWithSecrets", id="kcover.E001")
            )
        return found

    def place(self, instance: models.Model) -> envelope.SecretLocation:
        """The place where the value of this row is stored. Raises ValueError if the row is not identified yet."""
        row = getattr(instance, self.bound_to)
        if row in (None, ""):
            raise ValueError(f"{self}: set {self.bound_to} before saving, because the value is encrypted for it")
        engine = self.engine_only and keyring.is_configured(keyring.Ring.ENGINE)
        receiver = getattr(instance, self.sent_to) if self.sent_to and engine else ""
        column = f"{self.model._meta.db_table}.{self.column}"
        return envelope.SecretLocation(column, str(row), self.engine_only, receiver)

    def from_db_value(self, value: str | None, *_: Any) -> StoredValue | None:
        return None if value is None else StoredValue(value)

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        value = model_instance.__dict__.get(self.attname)
        if isinstance(value, str):
            value = StoredValue(envelope.seal(value, self.place(model_instance)) if value else "")
            model_instance.__dict__[self.attname] = value
        return value

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, StoredValue):
            return value.text
        if value in (None, ""):
            return value
        if hasattr(value, "resolve_expression"):
            return super().get_prep_value(value)
        raise TypeError(f"{self} is encrypted for its row: save the row instead; queries can only compare with ''")


class ModelWithSecrets(models.Model):
    """The base of models with encrypted fields: reading a row again copies stored values without decrypting them."""

    class Meta:
        abstract = True

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        """Django's own reads each attribute of the new row, which would decrypt it."""
        before = _as_stored.set(True)
        try:
            super().refresh_from_db(*args, **kwargs)
        finally:
            _as_stored.reset(before)


def stored(row: models.Model, name: str) -> str:
    """Returns the stored, encrypted value, to see whether it was changed; "" if it is empty or not saved yet."""
    value = row.__dict__.get(name)
    return value.text if isinstance(value, StoredValue) else ""


def is_set(row: models.Model, name: str) -> bool:
    """Returns whether the row has a value, without decrypting it."""
    value = row.__dict__.get(name)
    return bool(value.text if isinstance(value, StoredValue) else value)


def is_out_of_reach(row: models.Model, name: str) -> bool:
    """Returns whether the row has a value that only the engine's processes can decrypt, and this is none of them."""
    return envelope.is_for_engine(stored(row, name)) and not keyring.is_configured(keyring.Ring.ENGINE)


def peek(row: models.Model, name: str) -> Any:
    """Returns any attribute of the row; None if it is a secret that cannot be read."""
    try:
        return getattr(row, name)
    except envelope.SecretUnreadable:
        return None


def fields_of(model: type[models.Model]) -> list[EncryptedTextField]:
    """Returns the encrypted fields of a model."""
    return [field for field in model._meta.fields if isinstance(field, EncryptedTextField)]
