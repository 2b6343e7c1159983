"""Finds the guards that a change of settings loosens, so that the portal may act where it was held back before."""

from collections.abc import Callable, Mapping
from typing import Any

from kcover.decisions.guards.settings import Settings
from kcover.values import limits

# Settings by what loosens them. A setting that is in neither is a switch, a limit or a scope (see ``_EXTRA``).
_LOOSER_IF_MORE = ("storm.nodes", "storm.percent", "plans.limit", "repeats.limit", "expiry")
_LOOSER_IF_LESS = ("storm.window", "breaker.window", "cooldown", "hold_down", "repeats.window", "ladder.window")


def loosened(before: Settings, after: Settings) -> tuple[str, ...]:
    """The names of the guards that ``after`` loosens; () if the change only tightens.

    A guard that is off stays off whatever its numbers are. A count and a percentage cannot be compared: to replace one
    by the other counts as loosening.
    """
    found = [name for name in _LOOSER_IF_MORE if _get(after, name) > _get(before, name)]
    found += [name for name in _LOOSER_IF_LESS if _get(after, name) < _get(before, name)]
    names = dict.fromkeys(name.partition(".")[0] for name in found if _is_on(before, name.partition(".")[0]))
    names.update(dict.fromkeys(name for name, looser in _EXTRA.items() if looser(before, after)))
    return tuple(names)


def _get(settings: Settings, path: str) -> Any:
    value: Any = settings
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _is_on(settings: Settings, guard: str) -> bool:
    if guard == "ladder":
        return settings.ladder.reboots is not None
    return bool(getattr(getattr(settings, guard), "enabled", True))


def _switched_off(guard: str) -> Callable[[Settings, Settings], bool]:
    return lambda before, after: _is_on(before, guard) and not _is_on(after, guard)


def _breaker(before: Settings, after: Settings) -> bool:
    off = _switched_off("breaker")(before, after)
    return off or (before.breaker.enabled and _wider(before.breaker.limit, after.breaker.limit))


def _budget(before: Settings, after: Settings) -> bool:
    kept = {one.scope: one.limit for one in after.budget.scopes}
    if any(_wider(one.limit, kept.get(one.scope)) for one in before.budget.scopes):
        return True
    if before.budget.limit is None:
        return False
    return before.budget.by != after.budget.by or _wider(before.budget.limit, after.budget.limit)


def _floor(before: Settings, after: Settings) -> bool:
    return (after.floor.percent or 0) < (before.floor.percent or 0)


def _ladder(before: Settings, after: Settings) -> bool:
    reboots = before.ladder.reboots
    return reboots is not None and (after.ladder.reboots is None or after.ladder.reboots > reboots)


def _wider(before: limits.Limit, after: limits.Limit | None) -> bool:
    if after is None or (before.count is None) != (after.count is None):
        return True
    return (after.count or 0) > (before.count or 0) or (after.percent or 0) > (before.percent or 0)


_EXTRA: Mapping[str, Callable[[Settings, Settings], bool]] = {
    "storm": _switched_off("storm"),
    "rate": _switched_off("rate"),
    "breaker": _breaker,
    "budget": _budget,
    "floor": _floor,
    "ladder": _ladder,
}
