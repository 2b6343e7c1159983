"""Guards limit automation that may be right for one node and wrong for many.

``isolation`` is evaluated when a rule matches, ``destructive`` right before each call that takes work away. ``storm``
detects faults that share a cause. Pure: settings and counted facts in, reasons out.
"""

from kcover.decisions.guards.evaluate import (
    GUARDS as GUARDS,
    MAX_REDECIDE_AFTER as MAX_REDECIDE_AFTER,
    REDECIDE_AFTER as REDECIDE_AFTER,
    RuleLimits as RuleLimits,
    Storm as Storm,
    Verdict as Verdict,
    destructive as destructive,
    during_storm as during_storm,
    isolation as isolation,
    storm as storm,
    too_many_plans as too_many_plans,
)
from kcover.decisions.guards.facts import (
    EXCLUDE_LABEL as EXCLUDE_LABEL,
    SCOPES as SCOPES,
    TRAITS as TRAITS,
    Facts as Facts,
    FaultHistory as FaultHistory,
    FaultyNodes as FaultyNodes,
    Maintenance as Maintenance,
    Pool as Pool,
    RuleFacts as RuleFacts,
    Slots as Slots,
    Symptom as Symptom,
)
from kcover.decisions.guards.figures import ISOLATION as ISOLATION, figures as figures, recorded as recorded
from kcover.decisions.guards.looser_settings import loosened as loosened
from kcover.decisions.guards.reason_codes import guard_of as guard_of, is_of_storm as is_of_storm
from kcover.decisions.guards.room import headroom as headroom, in_scopes as in_scopes
from kcover.decisions.guards.settings import (
    SCOPE_KINDS as SCOPE_KINDS,
    Budget as Budget,
    BudgetScope as BudgetScope,
    SettingError as SettingError,
    Settings as Settings,
    merge as merge,
    parse as parse,
    to_json as to_json,
)
