"""The guard that each reason code belongs to."""

from kcover.decisions.guards.evaluate import GUARDS

STORMS = ("storm_code", "storm_job", "storm_switch", "storm_agent_version", "storm_budget")


def guard_of(code: str) -> str | None:
    """Returns the guard, or ``paused``, that a reason code belongs to; None if it belongs to none."""
    known = (*GUARDS, "paused")
    name = "cooldown" if code == "rule_cooldown" else code
    return next((guard for guard in known if name in (guard, f"{guard}_because")), "storm" if name in STORMS else None)
