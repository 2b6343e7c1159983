"""The base of all audit entries: a verb, typed fields, and the row that stores them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self, dataclass_transform

from kcover import reasons
from kcover.audit import codec

MAX_NAMED_NODES: Final = 50  # in one entry


class UnknownVerb(LookupError):
    """The ledger has an entry with a verb that this version does not know."""


class EntryLike(Protocol):
    """The columns of an entry from which an act is built."""

    @property
    def verb(self) -> str:
        """The act: one of the registry's verbs."""

    @property
    def subject(self) -> str:
        """The object of the act, for people."""

    @property
    def node(self) -> str:
        """The node's name; empty if the act is not about a node."""

    @property
    def rescue(self) -> int | None:
        """The rescue's id; None if the act is not part of a rescue."""

    @property
    def data(self) -> Mapping[str, Any]:
        """The act's other fields, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """An act as the ledger stores it.

    ``subject`` is for people, and the indexed key of ``audit.subjects``. Programs read the fields in ``data``.
    """

    verb: str
    subject: str
    node: str = ""
    rescue: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


REGISTRY: dict[str, type["Act"]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Act:
    """One kind of ledger entry. A subclass is a frozen dataclass, registered under its verb in ``REGISTRY``::

        class SinkDeleted(SinkAct, verb="audit_sink.deleted"): ...

    A verb such as ``rescue.{state}`` stands for one verb for each value of that field, an enum. A class without a verb
    is the base of others. ``subject``, for people, is filled from the fields: ``audit sink {sink}``.
    """

    VERB: ClassVar[str] = ""
    SUBJECT: ClassVar[str] = ""
    COLUMNS: ClassVar[Mapping[str, str]] = {"node": "node", "rescue": "rescue"}  # fields that have a column

    def __init_subclass__(cls, *, verb: str = "", subject: str = "") -> None:
        """Makes the dataclass and registers it. Raises ValueError for a verb that another class has."""
        super().__init_subclass__()
        cls.VERB, cls.SUBJECT = verb, subject or cls.SUBJECT
        made = dataclass(frozen=True, kw_only=True)(cls)
        if not verb:
            return
        if taken := made.verbs().keys() & REGISTRY.keys():
            raise ValueError(f"{cls.__name__}: another class has the verb {', '.join(sorted(taken))}")
        REGISTRY.update(dict.fromkeys(made.verbs(), made))

    @classmethod
    def verbs(cls) -> Mapping[str, Mapping[str, Any]]:
        """Every verb of the class, and the fields that the verb itself fixes."""
        if not (name := cls._field_in_verb()):
            return {cls.VERB: {}}
        return {cls.VERB.format_map({name: value}): {name: value} for value in cls._hints()[name]}

    @classmethod
    def _hints(cls) -> Mapping[str, Any]:
        return codec.hints(cls)  # type: ignore[arg-type]  # mypy takes no type[Self] for hashable

    @classmethod
    def _field_in_verb(cls) -> str:
        return cls.VERB.partition("{")[2].partition("}")[0]

    @property
    def verb(self) -> str:
        """The verb of this act: stable, and what the audit log is filtered by."""
        return self.VERB.format_map(vars(self))

    @property
    def subject(self) -> str:
        """The object of the act, for people."""
        return self.SUBJECT.format_map(vars(self))

    @property
    def own_words(self) -> str:
        """A person's own reason for the act; "" if nobody gave one."""
        return str(getattr(self, "reason", ""))

    @property
    def explanation(self) -> reasons.Reason | None:
        """The portal's reason for the act; None if it gives none."""
        because = getattr(self, "because", None)
        given = because if isinstance(because, tuple) else (because,)
        parts = [part for part in (*given, getattr(self, "withdrawn", None)) if isinstance(part, reasons.Reason)]
        return reasons.both(*parts) if parts else None

    def title(self) -> reasons.Reason:
        """The act in a few words."""
        return self.title_of(self.verb)

    @classmethod
    def title_of(cls, verb: str) -> reasons.Reason:
        """The title of the acts with one of this class's verbs."""
        return reasons.of(f"audit.{verb}")

    def to_entry(self) -> Columns:
        """The columns of the entry."""
        stored = {column: getattr(self, name) for name, column in self.COLUMNS.items() if hasattr(self, name)}
        data = codec.encode_fields(self, leave_out=frozenset({self._field_in_verb(), *self.COLUMNS}))
        return Columns(**{"verb": self.verb, "subject": self.subject, **stored, "data": data})

    @classmethod
    def of_entry(cls, entry: EntryLike) -> Self:
        """The act that an entry with one of this class's verbs records."""
        known = cls._hints()
        stored = {name: getattr(entry, column) for name, column in cls.COLUMNS.items() if name in known}
        data = {name: codec.decode(known[name], value) for name, value in entry.data.items()}
        return cls(**{**stored, **cls.verbs()[entry.verb], **data})


def from_entry(entry: EntryLike) -> Act:
    """The typed act of an entry. Raises UnknownVerb."""
    try:
        cls = REGISTRY[entry.verb]
    except KeyError as error:
        raise UnknownVerb(f"the ledger has an entry with the unknown verb {entry.verb!r}") from error
    return cls.of_entry(entry)


def known_act(entry: EntryLike) -> Act | None:
    """The typed act of an entry, for readers that leave out unknown verbs: None for those."""
    try:
        return from_entry(entry)
    except UnknownVerb:
        return None
