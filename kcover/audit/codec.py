"""Typed values to plain JSON and back, by the type hints of frozen dataclasses.

Supported: JSON scalars, enums, ``datetime``, ``Reason``, tuples, string mappings, dataclasses, and unions of one of
these with None. In a union of several dataclasses each has a ``CODE``, which the JSON keeps under "code".
"""

import dataclasses
import types
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from kcover import reasons

CODE_KEY = "code"


def encode(value: Any) -> Any:
    """The value as plain JSON."""
    match value:
        case reasons.Reason():
            return value.to_json()
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case tuple() | list():
            return [encode(item) for item in value]
        case Mapping():
            return {key: encode(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        code = {CODE_KEY: value.CODE} if hasattr(value, "CODE") else {}
        return {**code, **encode_fields(value)}
    return value


def encode_fields(value: Any, *, leave_out: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The fields of a dataclass as plain JSON, without those that have their default."""
    return {
        field.name: encode(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.name not in leave_out and not _is_default(field, getattr(value, field.name))
    }


def decode(hint: Any, value: Any) -> Any:
    """Decode a value of type ``hint`` that ``encode`` made. Raises TypeError or ValueError for anything else."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(hint), value)
    if origin is tuple:
        return tuple(decode(get_args(hint)[0], item) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        return {key: decode(get_args(hint)[1], item) for key, item in value.items()}
    if hint is reasons.Reason:
        return reasons.from_json(value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if dataclasses.is_dataclass(hint):
        return decode_fields(hint, value)
    return value


def decode_fields(cls: Any, value: Mapping[str, Any]) -> Any:
    """An instance of the dataclass; missing fields get their defaults."""
    known = hints(cls)
    return cls(**{name: decode(known[name], item) for name, item in value.items() if name != CODE_KEY})


@cache
def hints(cls: type) -> Mapping[str, Any]:
    """The resolved type hints of a dataclass's fields."""
    resolved = get_type_hints(cls)
    return {field.name: resolved[field.name] for field in dataclasses.fields(cls)}


def _decode_union(choices: tuple[Any, ...], value: Any) -> Any:
    if value is None:
        return None
    types = [choice for choice in choices if choice is not type(None)]
    if len(types) == 1:
        return decode(types[0], value)
    coded = {choice.CODE: choice for choice in types if hasattr(choice, "CODE")}
    if isinstance(value, Mapping) and value.get(CODE_KEY) in coded:
        return decode_fields(coded[value[CODE_KEY]], value)
    return value


def _is_default(field: "dataclasses.Field[Any]", value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(value == field.default)
    return field.default_factory is not dataclasses.MISSING and bool(value == field.default_factory())
