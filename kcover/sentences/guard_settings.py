"""Invalid settings of guards. Shown beside the field or after its path, so without a full stop."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "settings_not_object": _("Must be an object with {known}, not {value}."),
    "guard_setting_unknown": _("Unknown setting. Use one of {known}."),
    "guard_setting_misspelt": _("Unknown setting. Did you mean {near}?"),
    "not_a_flag": _("Must be true or false, not {value}."),
    "number_out_of_range": _("Must be a whole number from {least} to {most}, not {value}."),
    "percentage_out_of_range": _("Must be a whole percentage from {least} to {most}, not {value}."),
    "seconds_not_in_range": _("Must be whole seconds from {least} to {most}, not {value}."),
    "label_key_invalid": _("{label} is not a label key; write for example label:rack"),
    "budget_scope_unknown": _("Must be cluster, pool or label:KEY, not {value}."),
    "budget_scopes_not_list": _("Must be a list of groups, each with a limit, not {value}."),
    "budget_scopes_too_many": _("Must be at most {most} groups."),
    "budget_scopes_too_long": _("The groups take more than {most} characters. Select them by a label instead."),
    "budget_scope_twice": _("This group has a limit already. Change that limit."),
    "budget_scope_without_limit": _('Set a limit: a whole number from 1, or a percentage such as "10%".'),
}
