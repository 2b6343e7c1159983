"""Invalid requests of decision systems (KCE's actions) and invalid durations.

Both are shown inside another sentence or behind a prefix of KCE's protocol, so none ends with a full stop.
"""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "either": _("{first} or {others}"),
    "together": _("{first} and {others}"),
    "parameter_invalid": _("{parameter}: {problem}"),
    # Durations.
    "duration_spaces": _('"{text}": no spaces are allowed, write it like "1day2h30min" or "20min"'),
    "duration_sign": _(
        '{text}: no sign is allowed, a duration is never negative; write it like "1day2h30min" or "20min"'
    ),
    "duration_digits": _('{text}: digits must be ASCII (0 to 9), write it like "1day2h30min" or "20min"'),
    "duration_no_number": _('{text}: a number is missing before "{unit}", write it like "1day2h30min" or "20min"'),
    "duration_no_unit": _('{text}: a unit is missing, write "{text}day", "{text}h" or "{text}min"'),
    "duration_seconds": _("{text}: seconds are not supported, the smallest unit is min"),
    "duration_alias": _('{text}: write "{instead}"'),
    "duration_unit": _('{text}: the unit "{unit}" is unknown, use "day", "h" or "min"'),
    "duration_unit_twice": _('{text}: "{unit}" appears twice, write each unit once'),
    "duration_order": _('{text}: it must come before "{unit}", the order is day, h, min'),
    "duration_long": _('{text}: too long, write "{days}day" or less'),
    "duration_not_minutes": _("{duration}: a duration must be whole minutes, from 0 to {days} days"),
    # Requests.
    "actions_missing": _("{system} does not answer with a list of actions"),
    "actions_invalid": _("{system}: {problem}"),
    "request_not_object": _("the body must be an object with nodeName, xid and actions"),
    "request_unknown_key": _("unknown key {key}: known keys are {known}"),
    "request_node": _("nodeName must be the name of a node"),
    "request_xid": _("xid must be a whole number from 0 to {largest}"),
    "request_time_type": _("escalateTime must be a string, such as 30min or 2026-11-21T08:00:00Z"),
    "request_time_zone": _("escalateTime needs a UTC offset: write 2026-11-21T08:00:00Z for example"),
    "request_time_format": _("escalateTime must be a duration such as 30min, or a time such as 2026-11-21T08:00:00Z"),
    "request_time_past": _("escalateTime is in the past"),
    "request_no_actions": _("actions must be a list with at least one of {names}"),
    "request_many_actions": _("actions must have at most {most} entries, each action once"),
    "request_action_type": _("{action} must be an object with a name"),
    "request_action_key": _("{action}: unknown key {key}: known keys are {known}"),
    "request_action_name": _("{action}.name must be one of {names}"),
    "request_action_twice": _("{action}.name: {name} appears twice"),
    "request_wait_type": _("{action}.waittime must be a string such as 10min"),
    "request_wait_unused": _('{action}.waittime must be "": only {names} have a wait time'),
    "request_maps_type": _("{action}.maps must be a list of at most {most} string maps"),
    "request_map_values": _("{action}.maps must contain objects with string values, at most {most} keys each"),
    "request_map_uncordon": _('{action}.maps: unCordon must be "true" or "false"'),
    "action_needs": _("{name} needs {needed}"),
    "request_no_node": _("no such node {node} in cluster {cluster}"),
    "request_no_cluster": _("no such cluster {cluster}"),
    "request_clusters": _("cluster appears more than once in the request; pass it once"),
    "request_other_cluster": _("cluster: this token is bound to {cluster}"),
    "request_cluster_missing": _("cluster is missing: add ?cluster=NAME, or use a token that is bound to a cluster"),
    "override_unknown": _("override: {name} is not a guard; use one of {names}"),
    "override_scope": _("override: the token has no override scope"),
}
