"""How many more nodes each limit allows now. ``evaluate`` holds an isolation back where a limit has no room left."""

from collections.abc import Mapping

from kcover.decisions.guards.facts import Facts, Pool, Slots
from kcover.decisions.guards.settings import Breaker, Settings
from kcover.values import limits


def of_breaker(breaker: Breaker, facts: Facts) -> int:
    """The nodes that may be isolated before the breaker opens."""
    return max(0, breaker.limit.of(facts.eligible) - facts.isolated_lately)


def of_budget(limit: limits.Limit, slots: Slots) -> int:
    """The free slots of a budget."""
    return max(0, limit.of(slots.eligible) - slots.taken)


def of_floor(percent: int, pool: Pool) -> int:
    """The nodes in service that may leave the pool."""
    return max(0, pool.healthy - limits.Limit(percent=percent).of(pool.eligible))


def headroom(settings: Settings, facts: Facts) -> Mapping[str, int]:
    """The room of each limit that is set, by guard: for nodes of the group (pool or label) of the node at hand.

    Nodes that hold a slot already need no room. If no node is eligible, nothing may be isolated.
    """
    found: dict[str, int] = {}
    if settings.breaker.enabled:
        found["breaker"] = of_breaker(settings.breaker, facts)
    if settings.budget.limit is not None:
        found["budget"] = of_budget(settings.budget.limit, facts.slots)
    if settings.floor.percent is not None:
        found["floor"] = of_floor(settings.floor.percent, facts.pool)
    return found if facts.eligible else dict.fromkeys(found, 0)


def in_scopes(settings: Settings, facts: Facts) -> Mapping[int, int]:
    """The room of each scope with a budget of its own that the node at hand is in, by its place in the settings."""
    scopes = settings.budget.scopes
    return {int(place): of_budget(scopes[int(place)].limit, slots) for place, slots in facts.scoped.items()}
