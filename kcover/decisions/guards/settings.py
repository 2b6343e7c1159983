"""The settings of one cluster's guards, as values and as the JSON of ``/clusters/{name}/guards``.

Times are whole seconds in JSON. A limit is a count or a percentage (``5`` or ``"10%"``). Percentages round down, to at
least one node. docs/interfaces.md lists the defaults; the others are given here with their reasons.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from kcover import reasons
from kcover.nodes import scopes
from kcover.values import limits

MAX_COUNT = 1_000_000  # nodes or rescues: far more than any cluster has
MAX_WINDOW = timedelta(days=30)
SCOPE_KINDS = ("labels", "pools", "domains")  # a budget is for a group, whatever nodes it has
MAX_SCOPES = 20  # budgets of groups; each that covers a node is counted when the node is decided
MAX_SCOPE_CHARACTERS = 4_000  # of their JSON in all, because each decision keeps a copy of the settings
DEFAULT_BREAKER_LIMIT = limits.Limit(count=10)  # a larger wave of faults needs a person, however large the cluster is
_LABEL_PREFIX = "label:"
_LABEL = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")

Json = dict[str, Any]


class SettingError(reasons.ExplainedError, ValueError):
    """An invalid setting. ``path`` names it; ``reason`` says what is wrong and what to write instead."""

    def __init__(self, path: str, reason: reasons.Reason) -> None:
        super().__init__(reason)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else str(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """A symptom on ``nodes`` nodes and on ``percent`` of the eligible nodes within ``window`` is a storm."""

    enabled: bool = True
    nodes: int = 3
    percent: int = 3
    window: timedelta = timedelta(minutes=5)

    def reached_from(self, *, eligible: int) -> int:
        """The number of nodes from which a symptom is a storm, of so many eligible ones."""
        return max(self.nodes, limits.Limit(percent=self.percent).of(eligible))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Hold destructive acts while more nodes are faulty than chance explains (``guards.chance``)."""

    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """At most ``limit`` nodes of a cluster are isolated within ``window``."""

    enabled: bool = True
    limit: limits.Limit = DEFAULT_BREAKER_LIMIT
    window: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class BudgetScope:
    """What a budget is counted by. ``kind``: cluster, pool or label. ``label_key``: "" for other kinds."""

    kind: str = "cluster"
    label_key: str = ""

    def __str__(self) -> str:
        return f"{_LABEL_PREFIX}{self.label_key}" if self.kind == "label" else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedBudget:
    """A limit of its own for the nodes of one scope, in addition to the budget of the cluster."""

    scope: scopes.Scope
    limit: limits.Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """At most ``limit`` nodes are isolated or under rescue at the same time, counted by cluster, pool or label.

    None: no budget. ``scopes``: limits of single groups, which hold with or without it.
    """

    limit: limits.Limit | None = None
    by: BudgetScope = field(default_factory=BudgetScope)
    scopes: tuple[ScopedBudget, ...] = ()

    @property
    def is_set(self) -> bool:
        """Returns whether any slots are counted."""
        return self.limit is not None or bool(self.scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The minimum percentage of a pool's eligible nodes that stays in service. None: no floor."""

    percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """The number of plans of decision systems that may be open in the cluster at the same time (KCE's plan limit)."""

    limit: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """After ``limit`` rescues with a reboot or reset on one node within ``window``, a person takes over.

    The default is NVSentinel's: 5 remediations in 168 h.
    """

    limit: int = 5
    window: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """After ``reboots`` for one code on one node in ``window``, the hardware needs an inspection (gpud: 2 in 3 days).

    None (default): off. ``Repeats`` bounds every node already, and two reboots are too few for codes that a program can
    cause again at once (gpud itself exempts 94).
    """

    reboots: int | None = None
    window: timedelta = timedelta(days=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All guards of one cluster.

    ``cooldown``: how long a node is left alone after a rescue. ``hold_down``: how long a node must be without a fault
    before it counts as healthy. ``expiry``: a held decision is given up when the fault was not seen for this long.
    """

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
    """Parse the JSON; omitted settings have their defaults. Raises SettingError."""
    return Settings(**_object(data, "", _READERS))


def merge(settings: Settings, patch: object) -> Settings:
    """The settings with ``patch`` applied, section by section. Raises SettingError."""
    _object(patch, "", _READERS)  # validated on its own, so that error paths refer to the patch
    return parse(_merged(to_json(settings), patch))


def to_json(settings: Settings) -> Json:
    """The JSON of all settings, times in seconds; the inverse of ``parse``."""
    return {field.name: _plain(getattr(settings, field.name)) for field in fields(settings)}


def _plain(value: Any) -> Any:
    match value:
        case timedelta():
            return int(value.total_seconds())
        case limits.Limit():
            return limits.render(value)
        case BudgetScope():
            return str(value)
        case ScopedBudget():
            return {"limit": limits.render(value.limit), **value.scope.to_json()}
        case tuple():
            return [_plain(item) for item in value]
        case None | bool() | int() | str():
            return value
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _merged(settings: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    return {**settings, **{name: _merged(settings[name], value) for name, value in patch.items()}}


# --- one reader per setting; each gets the value and its path

Reader = Callable[[object, str], Any]


def _object(data: object, path: str, readers: Mapping[str, Reader]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise SettingError(path, reasons.of("settings_not_object", known=", ".join(readers), value=_shown(data)))
    for name in data:
        if name not in readers:
            near = difflib.get_close_matches(str(name), readers)
            known = reasons.of("guard_setting_unknown", known=", ".join(readers))
            misspelt = reasons.of("guard_setting_misspelt", near=near[0]) if near else known
            raise SettingError(_join(path, str(name)), misspelt)
    return {name: readers[name](value, _join(path, name)) for name, value in data.items()}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _section(kind: Callable[..., Any], **readers: Reader) -> Reader:
    return lambda data, path: kind(**_object(data, path, readers))


def _flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise SettingError(path, reasons.of("not_a_flag", value=_shown(value)))
    return value


def _whole(least: int, most: int, code: str) -> Callable[[object, str], int]:
    def read(value: object, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise SettingError(path, reasons.of(code, least=least, most=most, value=_shown(value)))
        return value

    return read


def _seconds(least: int, most: timedelta) -> Reader:
    read = _whole(least, int(most.total_seconds()), "seconds_not_in_range")
    return lambda value, path: timedelta(seconds=read(value, path))


def _limit(value: object, path: str) -> limits.Limit:
    try:
        return limits.parse(value)
    except limits.LimitError as error:
        raise SettingError(path, error.reason) from error


def _or_null(reader: Reader) -> Reader:
    return lambda value, path: None if value is None else reader(value, path)


def _by(value: object, path: str) -> BudgetScope:
    if isinstance(value, str) and value.startswith(_LABEL_PREFIX):
        key = value.removeprefix(_LABEL_PREFIX)
        if not _LABEL.fullmatch(key):
            raise SettingError(path, reasons.of("label_key_invalid", label=_shown(key)))
        return BudgetScope("label", key)
    if value not in ("cluster", "pool"):
        raise SettingError(path, reasons.of("budget_scope_unknown", value=_shown(value)))
    return BudgetScope(str(value))


def _scopes(value: object, path: str) -> tuple[ScopedBudget, ...]:
    if not isinstance(value, list):
        raise SettingError(path, reasons.of("budget_scopes_not_list", value=_shown(value)))
    if len(value) > MAX_SCOPES:
        raise SettingError(path, reasons.of("budget_scopes_too_many", most=MAX_SCOPES))
    found = tuple(_scoped(item, f"{path}[{place}]") for place, item in enumerate(value))
    if len(json.dumps([_plain(one) for one in found])) > MAX_SCOPE_CHARACTERS:
        raise SettingError(path, reasons.of("budget_scopes_too_long", most=MAX_SCOPE_CHARACTERS))
    for place, one in enumerate(found):
        if any(one.scope == other.scope for other in found[:place]):
            raise SettingError(f"{path}[{place}]", reasons.of("budget_scope_twice"))
    return found


def _scoped(value: object, path: str) -> ScopedBudget:
    """``{"limit", one of SCOPE_KINDS}``."""
    known = _object(value, path, {"limit": _limit, **dict.fromkeys(SCOPE_KINDS, _as_it_is)})
    if "limit" not in known:
        raise SettingError(_join(path, "limit"), reasons.of("budget_scope_without_limit"))
    try:
        scope = scopes.parse(known)
    except scopes.ScopeError as error:
        raise SettingError(_join(path, error.field), error.reason) from error
    if not scope.kind:
        raise SettingError(path, reasons.of("scope_required", known=", ".join(SCOPE_KINDS)))
    return ScopedBudget(scope=scope, limit=known["limit"])


def _as_it_is(value: object, path: str) -> object:
    return value


def _shown(value: object) -> str:
    written = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else None
    text = written or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_NODES = _whole(1, MAX_COUNT, "number_out_of_range")
_PERCENT = _whole(1, 100, "percentage_out_of_range")
_WINDOW = _seconds(1, MAX_WINDOW)
_READERS: Mapping[str, Reader] = {
    "storm": _section(Storm, enabled=_flag, nodes=_NODES, percent=_PERCENT, window=_WINDOW),
    "rate": _section(Rate, enabled=_flag),
    "breaker": _section(Breaker, enabled=_flag, limit=_limit, window=_WINDOW),
    "budget": _section(Budget, limit=_or_null(_limit), by=_by, scopes=_scopes),
    "floor": _section(Floor, percent=_or_null(_PERCENT)),
    "cooldown": _seconds(0, MAX_WINDOW),
    "hold_down": _seconds(0, timedelta(days=1)),
    "plans": _section(Plans, limit=_NODES),
    "repeats": _section(Repeats, limit=_NODES, window=_WINDOW),
    "ladder": _section(Ladder, reboots=_or_null(_NODES), window=_WINDOW),
    "expiry": _seconds(1, MAX_WINDOW),
}
