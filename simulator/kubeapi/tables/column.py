"""A column, and the cells that many kinds share: names, ages, fields."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from simulator.kubeapi import selectors

Object = dict[str, Any]

NONE = "<none>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; only ``-o wide`` shows the ``wide`` ones. ``value`` computes a cell from an object and the time."""

    name: str
    value: Callable[[Object, datetime], str | int]
    wide: bool = False
    kind: str = "string"


def duration(span: timedelta) -> str:
    """A span as ``k8s.io/apimachinery/pkg/util/duration`` shortens it: ``45s``, ``5m10s``, ``2d4h``, ``12d``."""
    seconds = int(span.total_seconds())
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _pair(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _pair(whole: int, unit: str, part: int, part_unit: str) -> str:
    return f"{whole}{unit}{part}{part_unit}" if part else f"{whole}{unit}"


def since(moment: str | None, now: datetime) -> str:
    """The age of an RFC 3339 time."""
    return duration(now - datetime.fromisoformat(moment)) if moment else UNKNOWN


def at(path: str, missing: str = NONE) -> Callable[[Object, datetime], str]:
    """A cell with the text at a path, or ``missing``."""
    return lambda obj, now: selectors.value_at(obj, path) or missing


def number(path: str, missing: int = 0) -> Callable[[Object, datetime], int]:
    """A cell with the number at a path, or ``missing``."""
    return lambda obj, now: int(selectors.value_at(obj, path) or missing)


def _age(obj: Object, now: datetime) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


NAME = Column("Name", at("metadata.name"))
AGE = Column("Age", _age)
