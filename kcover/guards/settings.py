"""The settings of the guards: one cluster's limits, as values and as the JSON of ``/clusters/{name}/guards``.

Times are whole seconds in JSON. A limit is a count or a percentage (``5`` or ``"10%"``); percentages round down, to at
least one node. Defaults: interfaces section 8, and where it is silent those that stand here with their reasons.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from kcover import limits

MOST = 1_000_000  # nodes, rescues: far above what any cluster has
LONGEST = timedelta(days=30)
TEN = limits.Limit(count=10)  # a wave of faults that is wider wants a person, however large the cluster
_LABEL = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")

Json = dict[str, Any]


class SettingError(ValueError):
    """A setting that is not accepted: ``path`` names it, ``reason`` says what is wrong and what to write instead."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path, self.reason = path, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """One symptom on ``nodes`` nodes and on ``percent`` of the eligible ones within ``window`` is a storm."""

    enabled: bool = True
    nodes: int = 3
    percent: int = 3
    window: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Whether destructive acts wait while more nodes are faulty than chance explains (``guards.chance``)."""

    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """At most ``limit`` nodes of a cluster are taken out of scheduling within ``window``."""

    enabled: bool = True
    limit: limits.Limit = TEN
    window: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """At most ``limit`` nodes are in rescue or isolated at one time, counted ``by`` cluster, pool or a label's value.

    None: no budget.
    """

    limit: limits.Limit | None = None
    by: str = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The percentage of a pool's eligible nodes that isolation leaves in service. None: no floor."""

    percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """How many plans of a decision system may be active in the cluster at one time (KCE's plan limit)."""

    limit: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """After ``limit`` rescues with a reboot on one node within ``window`` people take over.

    Default: NVSentinel's, 5 remediations in 168 h.
    """

    limit: int = 5
    window: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """After ``reboots`` for one code on one node within ``window`` its hardware is inspected (gpud: 2 in 3 days).

    None, the default: off. ``Repeats`` bounds every node already; two reboots are too few for codes that a program
    can raise again at once (gpud itself exempts 94), so whoever wants the ladder switches it on.
    """

    reboots: int | None = None
    window: timedelta = timedelta(days=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All guards of one cluster. ``cooldown``: how long a node is left alone after a rescue. ``hold_down``: how long a
    node must be without a fault before it counts as healthy. ``expiry``: what was held back is given up when the fault
    was not seen for so long."""

    storm: Storm = field(default_factory=Storm)
    rate: Rate = field(default_factory=Rate)
    breaker: Breaker = field(default_factory=Breaker)
    budget: Budget = field(default_factory=Budget)
    floor: Floor = field(default_factory=Floor)
    cooldown: timedelta = timedelta(0)
    hold_down: timedelta = timedelta(seconds=30)
    plans: Plans = field(default_factory=Plans)
    repeats: Repeats = field(default_factory=Repeats)
    ladder: Ladder = field(default_factory=Ladder)
    expiry: timedelta = timedelta(hours=24)


def parse(data: object) -> Settings:
    """The settings that the JSON means; what it leaves out has its default. Raises SettingError."""
    return Settings(**_object(data, "", _READERS))


def merge(settings: Settings, patch: object) -> Settings:
    """The settings with those of ``patch`` in their place, section by section. Raises SettingError."""
    _object(patch, "", _READERS)  # whatever it says must be right by itself, so that the path names the patch
    return parse(_merged(to_json(settings), patch))


def to_json(settings: Settings) -> Json:
    """What ``parse`` reads as these settings: every one of them, times in seconds."""
    return {one.name: _plain(getattr(settings, one.name)) for one in fields(settings)}


def _plain(value: Any) -> Any:
    match value:
        case timedelta():
            return int(value.total_seconds())
        case limits.Limit():
            return limits.render(value)
        case None | bool() | int() | str():
            return value
    return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}


def _merged(settings: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    return {**settings, **{name: _merged(settings[name], value) for name, value in patch.items()}}


# --- reading: one reader a setting, each given the value and the path that names it

Reader = Callable[[object, str], Any]


def _object(data: object, path: str, readers: Mapping[str, Reader]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise SettingError(path, f"must be an object with {', '.join(readers)}, not {_shown(data)}")
    for name in data:
        if name not in readers:
            near = difflib.get_close_matches(str(name), readers)
            hint = f": did you mean {near[0]}?" if near else f": there are {', '.join(readers)}"
            raise SettingError(_join(path, str(name)), f"unknown setting{hint}")
    return {name: readers[name](value, _join(path, name)) for name, value in data.items()}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _section(kind: Callable[..., Any], **readers: Reader) -> Reader:
    return lambda data, path: kind(**_object(data, path, readers))


def _flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise SettingError(path, f"must be true or false, not {_shown(value)}")
    return value


def _whole(least: int, most: int, what: str) -> Callable[[object, str], int]:
    def read(value: object, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise SettingError(path, f"must be {what} from {least} to {most}, not {_shown(value)}")
        return value

    return read


def _seconds(least: int, most: timedelta) -> Reader:
    read = _whole(least, int(most.total_seconds()), "whole seconds")
    return lambda value, path: timedelta(seconds=read(value, path))


def _limit(value: object, path: str) -> limits.Limit:
    try:
        return limits.parse(value)
    except limits.LimitError as error:
        raise SettingError(path, str(error)) from error


def _or_null(reader: Reader) -> Reader:
    return lambda value, path: None if value is None else reader(value, path)


def _by(value: object, path: str) -> str:
    label = value[len("label:") :] if isinstance(value, str) and value.startswith("label:") else None
    if label is not None and not _LABEL.fullmatch(label):
        raise SettingError(path, f"{_shown(label)} is no label name: write label:rack for example")
    if label is None and value not in ("cluster", "pool"):
        raise SettingError(path, f"must be cluster, pool or label:KEY, not {_shown(value)}")
    return str(value)


def _shown(value: object) -> str:
    written = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else None
    text = written or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_NODES = _whole(1, MOST, "a whole number")
_PERCENT = _whole(1, 100, "a whole percentage")
_WINDOW = _seconds(1, LONGEST)
_READERS: Mapping[str, Reader] = {
    "storm": _section(Storm, enabled=_flag, nodes=_NODES, percent=_PERCENT, window=_WINDOW),
    "rate": _section(Rate, enabled=_flag),
    "breaker": _section(Breaker, enabled=_flag, limit=_limit, window=_WINDOW),
    "budget": _section(Budget, limit=_or_null(_limit), by=_by),
    "floor": _section(Floor, percent=_or_null(_PERCENT)),
    "cooldown": _seconds(0, LONGEST),
    "hold_down": _seconds(0, timedelta(days=1)),
    "plans": _section(Plans, limit=_NODES),
    "repeats": _section(Repeats, limit=_NODES, window=_WINDOW),
    "ladder": _section(Ladder, reboots=_or_null(_NODES), window=_WINDOW),
    "expiry": _seconds(1, LONGEST),
}
