"""The guard that each reason code belongs to."""

from kcover.decisions.guards.evaluate import GUARDS
from kcover.decisions.guards.facts import Symptom
from kcover.reasons import Reason

STORMS = ("storm_code", "storm_job", "storm_switch", "storm_agent_version", "storm_budget")


def guard_of(code: str) -> str | None:
    """Returns the guard, or ``paused``, that a reason code belongs to; None if it belongs to none."""
    known = (*GUARDS, "paused")
    name = "cooldown" if code == "rule_cooldown" else code
    return next((guard for guard in known if name in (guard, f"{guard}_because")), "storm" if name in STORMS else None)


def is_of_storm(reason: Reason, symptom: Symptom) -> bool:
    """Returns whether the storm guard gives this reason because of the symptom."""
    return reason.code == f"storm_{symptom.trait}" and dict(reason.params)["value"] == symptom.text
