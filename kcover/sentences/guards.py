"""Findings of the guards: reasons to hold an action back, and reasons to let it pass."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "none_eligible": _("Cluster {cluster} has no eligible nodes, so limits cannot be calculated. No action is taken."),
    "overridden": _("{user} overrode the guard {guard}: {why}"),
    "not_excluded": _("Node {node} is not excluded (no label {label}=true)."),
    "maintenance": _("Maintenance window ({scope}) until {until}."),
    "maintenance_because": _("Maintenance window ({scope}) until {until}: {why}"),
    "no_maintenance": _("No maintenance window is active here."),
    "storm_code": _(
        "Storm: {value} on {nodes} nodes within {within} (threshold {limit}). A shared cause is "
        "likely, so the action waits until a person closes the storm."
    ),
    "storm_job": _(
        "Storm: {nodes} nodes of job {value} failed within {within} (threshold {limit}). A shared "
        "cause is likely, so the action waits until a person closes the storm."
    ),
    "storm_switch": _(
        "Storm: {nodes} nodes on switch {value} failed within {within} (threshold {limit}). A "
        "shared cause is likely, so the action waits until a person closes the storm."
    ),
    "storm_agent_version": _(
        "Storm: {nodes} nodes with agent {value} failed within {within} (threshold {limit}). A "
        "shared cause is likely, so the action waits until a person closes the storm."
    ),
    "storm_budget": _(
        "Not isolated during the storm: {taken} of {eligible} nodes are already isolated or in "
        "rescue (storm limit: {limit})."
    ),
    "storm_cordon": _(
        "Storm: {nodes} nodes failed in the same way within {within} (threshold {limit}). A node "
        "with its own hardware fault may be isolated, nothing more."
    ),
    "no_storm": _("No storm: no symptom on more than {nodes} nodes within {within} (threshold {limit})."),
    "rate": _(
        "Fault rate too high: {nodes} of {eligible} nodes failed within {within} (limit {limit}). {act} postponed."
    ),
    "rate_of_chance": _(
        "Fault rate is within normal variation: {ten_minutes} within 10 min, {hour} within 1 h, {six_hours} within 6 "
        "h, of {eligible} nodes."
    ),
    "act_cordon": _("Cordon"),
    "act_drain": _("Drain"),
    "act_end_exclusion": _("End of the exclusion"),
    "act_exclude": _("Exclusion"),
    "act_offline": _("Take offline"),
    "act_power_cycle": _("Power cycle"),
    "act_quarantine_device": _("Isolation of a device"),
    "act_reboot": _("Reboot"),
    "act_release": _("Release"),
    "act_replace": _("Replacement of the machine"),
    "act_reset": _("GPU reset"),
    "act_restart_jobs": _("Job restart"),
    "act_stop_jobs": _("Job stop"),
    "act_taint": _("Taint"),
    "act_uncordon": _("Uncordon"),
    "breaker": _("Breaker tripped: {isolated} of {eligible} nodes were isolated within {within} (limit {limit})."),
    "breaker_closed": _(
        "Breaker not tripped: {isolated} of {eligible} nodes were isolated within {within} (limit {limit})."
    ),
    "budget": _("No budget left for {scope}: {taken} of {eligible} nodes are isolated or in rescue (limit {limit})."),
    "budget_left": _("Budget left for {scope}: {taken} of {eligible} nodes are isolated or in rescue (limit {limit})."),
    "floor": _("Pool {pool} has {healthy} healthy nodes of {eligible} and must keep at least {floor}."),
    "above_floor": _(
        "Pool {pool} is above its floor: {healthy} of {eligible} nodes are healthy, at least {floor} are required."
    ),
    "cooldown": _("Cooldown until {until}: the last rescue of this node ended at {ended}."),
    "rule_cooldown": _("Cooldown until {until}: the last rescue of this node by rule {rule} ended at {ended}."),
    "cooled_down": _("No cooldown: no rescue of this node ended within {within}."),
}
