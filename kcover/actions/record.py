"""Arguments and progress of a step: frozen dataclasses that are stored as JSON and shown to people field by field."""

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self, get_args, get_origin

from kcover import reasons
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop
from kcover.values.kube_names import ObjectName


class ValueFormat(StrEnum):
    """The format in which the value of a field is shown."""

    TEXT = "text"
    NUMBER = "number"  # 0 is not shown
    YES_NO = "yes_no"
    SECONDS = "seconds"  # a number of seconds, shown as a duration
    MOMENT = "moment"
    NAMES = "names"  # a list of names, or a mapping by name; shown are the number and the first few
    BUDGETS = "budgets"  # pods, each with the disruption budgets that refuse to evict it
    CHOICE = "choice"  # one of ``choices``, each with its label
    REASON = "reason"
    VALUES = "values"  # a mapping; only the values are shown
    VALIDATION = "validation"  # the id of a validation, shown as a link to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """The presentation of a field to people. ``title`` and the labels in ``choices`` are messages to translate."""

    title: str
    form: ValueFormat = ValueFormat.TEXT
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict)


def shown(
    title: str,
    form: ValueFormat = ValueFormat.TEXT,
    *,
    default: Any = dataclasses.MISSING,
    choices: Mapping[str, str] | None = None,
    always: bool = False,
    kept: bool = False,
) -> Any:
    """Declare a field of ``Args`` or ``Progress`` that people see under ``title``; for the other arguments see
    ``hidden``.
    """
    described = Presentation(title=title, form=form, choices=choices or {})
    return _field(default, {"shown": described, "always": always, "kept": kept})


def hidden(*, default: Any = dataclasses.MISSING, always: bool = False, kept: bool = False) -> Any:
    """Declare a field of ``Args`` or ``Progress`` that no page shows.

    ``always``: write the field to JSON even if it has its default. ``kept``: the field survives an operator's retry,
    and does not count as something that the step has done.
    """
    return _field(default, {"always": always, "kept": kept})


def _field(default: Any, metadata: Mapping[str, object]) -> Any:
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """JSON values with names and types.

    Times are written as ISO 8601, tuples as lists, reasons as ``reasons.Reason.to_json``; defaults are left out.
    """

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The record that ``to_json`` wrote. Raises ValueError for an unknown key, TypeError for a missing one."""
        types_ = {field.name: field.type for field in dataclasses.fields(cls)}
        unknown = sorted(data.keys() - types_.keys())
        if unknown:
            raise ValueError(f"{cls.__module__}.{cls.__name__} has no field {unknown[0]!r}: use {', '.join(types_)}")
        return cls(**{key: _read(types_[key], value) for key, value in data.items()})

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, without the fields that have their default."""
        written = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata.get("always") or value != _default(field):
                written[field.name] = _write(value)
        return written


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(Record):
    """The arguments that a plan gives to a step; part of the plan's hash."""

    @property
    def time_limit(self) -> timedelta | None:
        """The time that the step may take from its start; None if its arguments set no limit."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Record):
    """The data that a step keeps between two runs. It is stored before the call that it describes."""

    retry: int = shown(gettext_noop("Retries"), ValueFormat.NUMBER, default=0, kept=True)  # by an operator
    gated: bool = hidden(default=False)  # approve mode was set while the step ran: it needs an approval to continue

    @classmethod
    def initial(cls, *, boot_id: str) -> Self:
        """The progress of a step when its rescue is opened. ``boot_id``: the node's boot then, "" if unknown."""
        return cls()

    @property
    def begun(self) -> bool:
        """True if the step has done something, or may have. Fields marked ``kept`` do not count."""
        return any(
            getattr(self, field.name) != _default(field)
            for field in dataclasses.fields(self)
            if not field.metadata.get("kept")
        )

    @property
    def committed(self) -> bool:
        """True if the step has made a request that is completed even if the fault is over by now."""
        return False

    @property
    def isolated_part(self) -> str:
        """The part of the node that the step isolated; "" if it isolated the whole node, or nothing yet."""
        return ""

    @property
    def new_boot(self) -> str:
        """The boot in which the node came up during this step; "" if the step does not reboot."""
        return ""

    def retried(self) -> Self:
        """The progress with which an operator's retry begins."""
        fresh = {
            field.name: _default(field)
            for field in dataclasses.fields(self)
            if not field.metadata.get("kept") and _default(field) is not dataclasses.MISSING
        }
        return dataclasses.replace(self, **{**fresh, "retry": self.retry + 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsProgress(Progress):
    """Progress of a step that creates jobs in the cluster.

    They are deleted when its rescue ends or the step is skipped.

    ``jobs``: namespace/name of every job, stored before it is created. ``withdrawal``: the progress of their deletion.
    """

    jobs: tuple[str, ...] = hidden(default=(), kept=True)
    withdrawal: Mapping[str, Any] = hidden(default={})

    @property
    def old_boot(self) -> str:
        """The boot that the jobs end; "" if they end none."""
        return ""

    @property
    def leftovers(self) -> tuple[ObjectName, ...]:
        """The jobs that are not known to be deleted."""
        return () if self.withdrawal.get("done") else tuple(map(ObjectName.parse, self.jobs))


def fields_shown(record: type[Record]) -> list[tuple[str, Presentation]]:
    """The fields that people see, in the order of their declaration; those of the base class come last."""
    found = [(field.name, field.metadata["shown"]) for field in dataclasses.fields(record) if "shown" in field.metadata]
    inherited = {field.name for field in dataclasses.fields(Progress)}
    return sorted(found, key=lambda pair: pair[0] in inherited)


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _read(annotation: object, value: Any) -> Any:
    parts = get_args(annotation) if get_origin(annotation) is types.UnionType else (annotation,)
    if isinstance(value, str) and datetime in parts:
        return datetime.fromisoformat(value)
    if isinstance(value, dict) and Reason in parts:
        return reasons.from_json(value)
    if isinstance(value, list) and any(get_origin(part) is tuple for part in parts):
        return tuple(value)
    return value


def _write(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Reason):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value
