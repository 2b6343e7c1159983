"""Guards: what bounds automation when it is right about one node and wrong about many.

``isolation`` is asked when a rule matches, ``destructive`` right before each call that takes running work away,
``storm`` tells whether a fault is one of many. Pure: settings and counted facts in, reasons out.
"""

from kcover.guards.facts import (
    EXCLUDE_LABEL,
    SCOPES,
    TRAITS,
    Facts,
    Faulty,
    Maintenance,
    Pool,
    RuleFacts,
    Slots,
    Symptom,
)
from kcover.guards.settings import SettingError, Settings, merge, parse, to_json
from kcover.guards.weighing import (
    AGAIN,
    AGAIN_AT_MOST,
    GUARDS,
    RuleLimits,
    Storm,
    Verdict,
    destructive,
    isolation,
    storm,
    too_many_plans,
)

__all__ = [
    "AGAIN",
    "AGAIN_AT_MOST",
    "EXCLUDE_LABEL",
    "GUARDS",
    "SCOPES",
    "TRAITS",
    "Facts",
    "Faulty",
    "Maintenance",
    "Pool",
    "RuleFacts",
    "RuleLimits",
    "SettingError",
    "Settings",
    "Slots",
    "Storm",
    "Symptom",
    "Verdict",
    "destructive",
    "isolation",
    "merge",
    "parse",
    "storm",
    "to_json",
    "too_many_plans",
]
