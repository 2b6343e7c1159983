"""Arguments and progress of a step: frozen dataclasses that are kept as JSON and shown to people field by field."""

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


class Form(StrEnum):
    """How a field's value is shown."""

    TEXT = "text"
    NUMBER = "number"  # 0 is not shown
    YES_NO = "yes_no"
    SECONDS = "seconds"  # a number of seconds, shown as a span of time
    MOMENT = "moment"
    NAMES = "names"  # a list of names, or a mapping by name: how many, and the first few
    BUDGETS = "budgets"  # pods, each with the disruption budgets that refuse to evict it
    CHOICE = "choice"  # one of ``choices``, each with its words
    REASON = "reason"
    VALUES = "values"  # a mapping of which only the values are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What people see of a field. ``title`` and the words of ``choices`` are messages to translate."""

    title: str
    form: Form = Form.TEXT
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict)


def shown(
    title: str,
    form: Form = Form.TEXT,
    *,
    default: Any = dataclasses.MISSING,
    choices: Mapping[str, str] | None = None,
    always: bool = False,
    kept: bool = False,
) -> Any:
    """Declares a field of ``Args`` or ``Progress`` that people see under ``title``; see ``hidden`` for the rest."""
    described = Shown(title=title, form=form, choices=choices or {})
    return _field(default, {"shown": described, "always": always, "kept": kept})


def hidden(*, default: Any = dataclasses.MISSING, always: bool = False, kept: bool = False) -> Any:
    """Declares a field of ``Args`` or ``Progress`` that no page shows.

    ``always``: written to JSON even where it has its default. ``kept``: survives an operator's retry, and does not
    count as something that the step has done.
    """
    return _field(default, {"always": always, "kept": kept})


def _field(default: Any, metadata: Mapping[str, object]) -> Any:
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Values of JSON with names and types.

    Moments are written as ISO 8601, tuples as lists, reasons as ``reasons.Reason.to_json``; defaults are left out.
    """

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The record that ``to_json`` wrote. Raises ValueError for an unknown key, TypeError for a missing one."""
        types_ = {one.name: one.type for one in dataclasses.fields(cls)}
        unknown = sorted(data.keys() - types_.keys())
        if unknown:
            raise ValueError(f"{cls.__module__}.{cls.__name__} has no field {unknown[0]!r}: use {', '.join(types_)}")
        return cls(**{key: _read(types_[key], value) for key, value in data.items()})

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, without the fields that have their default."""
        written = {}
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if one.metadata.get("always") or value != _default(one):
                written[one.name] = _write(value)
        return written


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(Record):
    """What a plan tells a step; part of the plan's hash."""

    @property
    def time_limit(self) -> timedelta | None:
        """How long the step may take from its start, if its arguments bound it."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Record):
    """What a step remembers between two runs, stored before the call that it is about."""

    retry: int = shown(gettext_noop("Retries"), Form.NUMBER, default=0, kept=True)  # by an operator
    gated: bool = hidden(default=False)  # approve mode was set in its middle: it goes on only with an approval

    @classmethod
    def initial(cls, *, boot_id: str) -> Self:
        """What a step knows when its rescue is opened. ``boot_id``: the node's boot at that time, "" if unknown."""
        return cls()

    @property
    def begun(self) -> bool:
        """Whether the step has done something, or may have; fields marked ``kept`` say nothing of it."""
        return any(
            getattr(self, one.name) != _default(one) for one in dataclasses.fields(self) if not one.metadata.get("kept")
        )

    @property
    def committed(self) -> bool:
        """Whether the step has asked for something that is seen through even where the fault is over by now."""
        return False

    @property
    def new_boot(self) -> str:
        """The boot that the node came up in during this step, "" where the step is about no boot."""
        return ""

    def retried(self) -> Self:
        """The progress that an operator's retry begins with."""
        fresh = {
            one.name: _default(one)
            for one in dataclasses.fields(self)
            if not one.metadata.get("kept") and _default(one) is not dataclasses.MISSING
        }
        return dataclasses.replace(self, **{**fresh, "retry": self.retry + 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsProgress(Progress):
    """Progress of a step that leaves jobs on the cluster; they are deleted when its rescue ends or it is skipped.

    ``jobs``: namespace/name of every job, stored before it is made. ``withdrawal``: how far their deletion is.
    """

    jobs: tuple[str, ...] = hidden(default=(), kept=True)
    withdrawal: Mapping[str, Any] = hidden(default={})

    @property
    def leftovers(self) -> tuple[str, ...]:
        """The jobs whose deletion is not proved yet."""
        return () if self.withdrawal.get("done") else self.jobs


def fields_shown(record: type[Record]) -> list[tuple[str, Shown]]:
    """The fields that people see, in the order of their declaration; those of the base class last."""
    found = [(one.name, one.metadata["shown"]) for one in dataclasses.fields(record) if "shown" in one.metadata]
    inherited = {one.name for one in dataclasses.fields(Progress)}
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
