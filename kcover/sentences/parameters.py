"""Names of things inside of other sentences: scopes, parts of an approval, durations, states.

They are not full sentences: they start in lower case and have no full stop.
"""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # What a maintenance window or a budget covers.
    "scope_all": _("all clusters"),
    "scope_cluster": _("cluster {name}"),
    "scope_pool": _("pool {name}"),
    "scope_label": _("label {name}"),
    "scope_rule": _("rule {name}"),
    "scope_node": _("node {name}"),
    "scope_rack": _("rack {name}"),
    "scope_leaf": _("leaf switch {name}"),
    "scope_nvlink": _("NVLink domain {name}"),
    "pool_unnamed": _("without a name"),
    # Durations.
    "span_d": _("{n} d"),
    "span_h": _("{n} h"),
    "span_min": _("{n} min"),
    "span_s": _("{n} s"),
    # The parts of an approval's subject.
    "part_rescue": _("rescue"),
    "part_step": _("step"),
    "part_plan_hash": _("plan"),
    "part_node": _("node"),
    "part_uid": _("machine"),
    # States of commands of agents, callbacks and requested changes.
    "state_offered": _("not answered"),
    "state_done": _("done"),
    "state_failed": _("failed"),
    "state_refused": _("refused"),
    "state_expired": _("expired"),
    "state_confirmed": _("confirmed"),
    "state_rejected": _("rejected"),
    "state_with_message": _("{state}: {message}"),
    "none": _("none"),
    # Modes of a cluster.
    "mode_shadow": _("shadow"),
    "mode_approve": _("approve"),
    "mode_enforce": _("enforce"),
    "mode_paused": _("paused"),
    # Guards that a user overrode.
    "guard_maintenance": _("maintenance window"),
    "guard_storm": _("storm"),
    "guard_rate": _("fault rate"),
    "guard_breaker": _("breaker"),
    "guard_budget": _("budget"),
    "guard_floor": _("pool floor"),
    "guard_cooldown": _("cooldown"),
    "late_report": _("{source} reported {fault} {late} late"),
}
