"""Guards limit automation that may be right for one node and wrong for many.

``isolation`` is evaluated when a rule matches, ``destructive`` right before each call that takes work away. ``storm``
detects faults that share a cause. Pure: settings and counted facts in, reasons out.
"""

from kcover.decisions.guards.evaluate import (
    GUARDS,
    MAX_REDECIDE_AFTER,
    REDECIDE_AFTER,
    RuleLimits,
    Storm,
    Verdict,
    destructive,
    during_storm,
    isolation,
    storm,
    too_many_plans,
)
from kcover.decisions.guards.facts import (
    EXCLUDE_LABEL,
    SCOPES,
    TRAITS,
    Facts,
    FaultHistory,
    FaultyNodes,
    Maintenance,
    Pool,
    RuleFacts,
    Slots,
    Symptom,
)
from kcover.decisions.guards.figures import ISOLATION, figures
from kcover.decisions.guards.looser_settings import loosened
from kcover.decisions.guards.reason_codes import guard_of
from kcover.decisions.guards.room import headroom
from kcover.decisions.guards.settings import BudgetScope, SettingError, Settings, merge, parse, to_json

__all__ = [
    "EXCLUDE_LABEL",
    "GUARDS",
    "ISOLATION",
    "MAX_REDECIDE_AFTER",
    "REDECIDE_AFTER",
    "SCOPES",
    "TRAITS",
    "BudgetScope",
    "Facts",
    "FaultHistory",
    "FaultyNodes",
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
    "during_storm",
    "figures",
    "guard_of",
    "headroom",
    "isolation",
    "loosened",
    "merge",
    "parse",
    "storm",
    "to_json",
    "too_many_plans",
]
