"""The figures of one evaluation of the guards, as small JSON from which anybody can repeat it."""

from collections.abc import Mapping
from typing import Any

from kcover.decisions.guards.evaluate import RuleLimits
from kcover.decisions.guards.facts import EXCLUDE_LABEL, Facts
from kcover.decisions.guards.settings import Settings, to_json
from kcover.values import limits

ISOLATION = "isolation"  # the act whose figures are those of ``guards.isolation``

_SETTINGS = {
    True: ("storm", "breaker", "budget", "floor", "cooldown"),
    False: ("storm", "rate", "floor"),
}
_FACTS = {
    True: ("isolated_lately", "slots", "scoped", "pool", "holds_slot", "hardware", "last_rescue_ended_at", "rules"),
    False: ("faulty", "past", "pool"),
}
_ALWAYS = ("cluster", "node", "eligible", "serving", "symptoms", "maintenance")


def figures(settings: Settings, facts: Facts, *, act: str, rule: RuleLimits | None = None) -> dict[str, Any]:
    """``{"settings", "facts", "excluded", "rule"}`` with what the guards of the act read, times in seconds."""
    isolates, plain, known = act == ISOLATION, recorded(settings, facts), facts.to_json()
    return {
        "settings": {name: plain[name] for name in _SETTINGS[isolates]},
        "facts": {name: known[name] for name in (*_ALWAYS, *_FACTS[isolates]) if known[name] not in ([], {}, None)},
        "excluded": facts.labels.get(EXCLUDE_LABEL) == "true",
        **({"rule": rule_limits(rule)} if rule is not None else {}),
    }


def recorded(settings: Settings, facts: Facts | None) -> Mapping[str, Any]:
    """The settings as plain JSON, with the limits of those groups only that the node of the facts is in.

    Who may see one node learns no names of other pools or racks. The places of the other groups stay, as null.
    """
    plain, scoped = to_json(settings), facts.scoped if facts is not None else {}
    limited = [
        {"limit": one["limit"]} if str(place) in scoped else None for place, one in enumerate(plain["budget"]["scopes"])
    ]
    return {**plain, "budget": {**plain["budget"], "scopes": limited if scoped else []}}


def rule_limits(rule: RuleLimits) -> Mapping[str, Any]:
    """The limits of a rule as plain JSON; the cooldown in seconds."""
    return {
        "name": rule.name,
        "budget": limits.render(rule.budget) if rule.budget is not None else None,
        "cooldown": int(rule.cooldown.total_seconds()) if rule.cooldown is not None else None,
    }
