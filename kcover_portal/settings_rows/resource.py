"""Makes, changes and deletes the rows of one kind, each act with its entry in the audit log."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db import IntegrityError, models, transaction
from django.db.models import QuerySet

from kcover import audit, reasons
from kcover.values import masked_addresses
from kcover_portal import encryption
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import FieldError
from kcover_portal.settings_rows import names
from kcover_portal.settings_rows.columns import Column, Pairs, Words

Row = TypeVar("Row", bound=models.Model)
Given = Mapping[str, Any]  # settings by name


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[Row]):
    """What a kind of rows consists of. A subclass overrides what the acts on its rows do beside the common part.

    ``noun``: what one row is, and the field of its entries that names it. ``columns``: its settings. ``making``:
    settings of a new row only, which no field stores. ``kinds``: the kinds of rows that people make; empty: rows have
    none. ``created``, ``changed`` and ``deleted``: its entries.

    ``verb``: the right to see and set the rows; in the row's cluster if rows have one, else everywhere.
    ``name_invalid`` and ``name_taken``: what to say about a name that is wrong, or that another row has.
    ``taken_conflicts``: the latter is a conflict. ``name_hint``: what the console says about names.
    ``related`` and ``fetched``: the rows that each row names, and those that name it, which lists read with it.
    ``has_cluster``: a row is about one cluster, and its entries are in that cluster's part of the audit log.
    ``rings``: the topic of live pages that each act rings.
    """

    model: type[Row]
    noun: str
    verb: str
    columns: tuple[Column, ...]
    created: Callable[..., audit.Act]
    changed: Callable[..., audit.Act]
    deleted: Callable[..., audit.Act]
    name_invalid: reasons.Reason
    name_taken: Callable[[str], reasons.Reason]
    taken_conflicts: bool = False
    name_hint: Words = ""
    making: tuple[Column, ...] = ()
    kinds: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    fetched: tuple[str, ...] = ()
    has_cluster: bool = False
    rings: str = ""

    def unknown_kind(self, kind: str) -> FieldError:
        """The error for a kind of which people make no rows."""
        return FieldError("kind", reasons.of("kind_unknown", kind=repr(kind[:60]), known=", ".join(self.kinds)))

    def read(self, kind: str, given: Given) -> Given:
        """The settings from another form in which they may be given. Raises FieldError."""
        return given

    def check(self, row: Row, given: Given) -> None:
        """Raises FieldError unless the whole row fits. It may complete the row."""

    def more_verbs(self, given: Given, row: Row | None) -> Collection[str]:
        """The rights that these settings need besides ``verb``. ``row``: that is changed; None: a new one is made."""
        return ()

    def not_secret(self, row: Row) -> Collection[str]:
        """The encrypted fields of a row that everybody with the right may see."""
        return ()

    def before_make(self, row: Row, *, now: datetime) -> None:
        """Sets what a new row has before its settings."""

    def after_make(self, row: Row, making: Given) -> Mapping[str, Any]:
        """Does what a new row needs, in its transaction; returns more fields of its entry."""
        return {}

    def before_change(self, row: Row, before: Given, *, actor: str, now: datetime) -> Collection[str]:
        """Sets more fields at a change, and returns their names. ``before``: the earlier values by field."""
        return ()

    def may_follow(self, row: Row, before: Given) -> bool:
        """Returns whether a stored secret may go to the row's new receiver without being given again."""
        return False

    def before_delete(self, row: Row, *, actor: str, reason: str, now: datetime) -> Mapping[str, Any]:
        """Does what the end of a row needs, in its transaction; returns more fields of its entry. Raises FieldError."""
        return {}

    def rows(self) -> QuerySet[Row]:
        """All rows, with those that they name."""
        return self.model._default_manager.select_related(*self.related or (None,)).prefetch_related(*self.fetched)

    def cluster_of(self, row: Row) -> str:
        """The name of the row's cluster; "" if it is about the whole installation."""
        about: Any = row
        return str(about.cluster) if self.has_cluster else ""

    def columns_of(self, kind: str) -> tuple[Column, ...]:
        """The settings of a kind of rows."""
        return tuple(column for column in self.columns if column.is_of(kind))

    def make(self, row: Row, given: Given, *, actor: str, now: datetime) -> Row:
        """Saves a new row, which has its name, kind and cluster already. Raises FieldError."""
        new: Any = row
        if not names.NAME.fullmatch(new.name):
            raise FieldError("name", self.name_invalid)
        if self.kinds and new.kind not in self.kinds:
            raise self.unknown_kind(new.kind)
        making = {column.name: given[column.name] for column in self.making if column.name in given}
        new.created_by, new.created_at = actor, now
        self.before_make(row, now=now)
        self._set(row, self._read(row, {name: given[name] for name in given if name not in making}))
        try:
            with transaction.atomic(), _can_encrypt():
                row.save(force_insert=True)
                more = self.after_make(row, making)
                act = self.created(settings=self._shown(row), **self._identity(row), **more)
                self._record(row, act, actor=actor, now=now)
        except IntegrityError as error:
            raise FieldError("name", self.name_taken(new.name), conflict=self.taken_conflicts) from error
        return row

    def change(self, row: Row, given: Given, *, actor: str, reason: str = "", now: datetime) -> Row:
        """Changes the given settings, all or none, and reads the row again. Raises FieldError.

        Whoever changes where a stored secret is sent must give the secret again, unless ``may_follow`` allows it.
        """
        given = self._read(row, given)
        with transaction.atomic():
            locked = self._lock(row)
            before = {column.field: encryption.peek(locked, column.field) for column in self.columns}
            sent = [secret for secret in encryption.fields_of(self.model) if secret.sent_to]
            sent_to = {secret: encryption.peek(locked, secret.sent_to) for secret in sent}
            self._set(locked, given)
            named = [column.field for column in self.columns if column.name in given]
            changed = [name for name in named if before[name] != encryption.peek(locked, name)]
            moved = [secret.name for secret, to in sent_to.items() if self._moves(locked, secret, to)]
            for secret in moved:
                self._carry(locked, secret, named=named, before=before)
            changed += [secret for secret in moved if secret in named and secret not in changed]
            if changed:
                more = self.before_change(locked, before, actor=actor, now=now)
                with _can_encrypt():
                    locked.save(update_fields={*changed, *moved, *more})
                values = {name: self._change(locked, name, before[name]) for name in changed}
                identity = {self.noun: str(locked)}
                self._record(locked, self.changed(changed=values, reason=reason, **identity), actor=actor, now=now)
            row.refresh_from_db()
        return row

    def delete(self, row: Row, *, actor: str, reason: str = "", now: datetime) -> None:
        """Deletes a row. Raises FieldError if something still needs it."""
        with transaction.atomic():
            locked = self._lock(row)
            more = self.before_delete(locked, actor=actor, reason=reason, now=now)
            act = self.deleted(reason=reason, **self._identity(locked), **more)
            self._record(locked, act, actor=actor, now=now)
            locked.delete()

    def _lock(self, row: Row) -> Row:
        rows = self.model._default_manager.select_related(*self.related or (None,))
        locked = rows.select_for_update(of=("self",)).filter(pk=row.pk).first()
        if locked is None:
            raise FieldError("", reasons.of("setting_gone", name=str(row)), conflict=True)
        return locked

    def _read(self, row: Row, given: Given) -> Given:
        return self.read(self._kind(row), given)

    def _kind(self, row: Row) -> str:
        return getattr(row, "kind", "")

    def _set(self, row: Row, given: Given) -> None:
        """Sets the given settings, and checks each and then the whole row. Raises FieldError."""
        known = {column.name: column for column in self.columns}
        for name, value in given.items():
            if name not in known:
                raise FieldError(name, reasons.of("setting_unknown", name=name, known=", ".join(known)))
            column = known[name]
            kept = getattr(row, column.field) if isinstance(column, Pairs) else None
            setattr(row, column.field, {**kept, **value} if kept else value)
        for column in self.columns_of(self._kind(row)):
            problem = column.problem(given[column.name]) if column.name in given else None
            if problem is not None:
                raise FieldError(column.name, problem)
        try:
            self.check(row, given)
        except encryption.SecretUnreadable as unreadable:
            raise FieldError(unreadable.place.column.rpartition(".")[2], unreadable.reason) from unreadable

    def _moves(self, row: Row, secret: encryption.EncryptedTextField, receiver: object) -> bool:
        """Returns whether a secret gets another receiver, for which it must be encrypted again."""
        return encryption.is_set(row, secret.name) and encryption.peek(row, secret.sent_to) != receiver

    def _carry(self, row: Row, secret: str, *, named: Collection[str], before: Given) -> None:
        """Takes a secret that is not given again to its new receiver. Raises FieldError unless it may follow."""
        if secret in named:
            return
        if before[secret] is None or not self.may_follow(row, before):
            raise FieldError(secret, reasons.of("secret_again"))
        setattr(row, secret, before[secret])

    def secrets_of(self, row: Row) -> set[str]:
        return {secret.name for secret in encryption.fields_of(self.model)} - set(self.not_secret(row))

    def _shown(self, row: Row) -> dict[str, Any]:
        """The settings as the audit log may show them."""
        secrets = self.secrets_of(row)
        fields = [column.field for column in self.columns if column.field not in secrets]
        shown = {name: _plain(getattr(row, name)) for name in fields}
        return {"cluster": self.cluster_of(row), **shown} if self.cluster_of(row) else shown

    def _change(self, row: Row, name: str, before: object) -> audit.Change:
        if name in self.secrets_of(row):
            return audit.SECRET_CHANGED
        return audit.Change(before=_plain(before), after=_plain(getattr(row, name)))

    def _identity(self, row: Row) -> dict[str, Any]:
        """The fields by which every entry of the row names it."""
        return {self.noun: str(row), **({"kind": self._kind(row)} if self.kinds else {})}

    def _record(self, row: Row, act: audit.Act, *, actor: str, now: datetime) -> None:
        ledger.record(self.cluster_of(row), act, actor=actor, now=now)
        if self.rings:
            doorbell.publish(self.rings, row.pk or 0)


@contextmanager
def _can_encrypt() -> Iterator[None]:
    """Raises FieldError if a secret cannot be encrypted, because the keys are unusable."""
    try:
        yield
    except encryption.KeysUnusable as error:
        raise FieldError("", error.reason, conflict=True) from error


def _plain(value: Any) -> Any:
    """A value as JSON, without keys in its addresses; a related row by its name."""
    return str(value) if isinstance(value, models.Model) else masked_addresses.mask(value)
