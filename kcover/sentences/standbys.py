"""Warm standbys: how one is chosen, put into service and given back."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "standby_by_rule": _("Standby {standby} (chosen at random from the {free} available that rule {rule} allows)"),
    "standby_of_any": _("Standby {standby} (chosen at random from the {free} available; no rule selected one)"),
    "standby_shortage": _("None of {standbys} standbys is available. The plan continues without one."),
    "standbys_unfit": _("{count} standbys were tried and none was usable. The plan continues without one."),
    "standby_not_ready": _("Standby {standby} is not Ready."),
    "standby_unhealthy": _("Standby {standby} is not healthy."),
    "standby_untested": _("Standby {standby} did not pass pair tests in the last week."),
    "standby_promised": _("Standby {standby} is reserved for another node."),
    "standby_mark_gone": _("Standby {standby} is no longer reserved: its mark was removed."),
    "standby_other_mark": _("Standby {standby} carries the mark of assignment {assignment}."),
    "standby_unproved": _(
        "{standby} says that it is a standby, which its own kubelet can do. Set the label {label} or the taint {taint}."
    ),
    "standby_cordoned": _("Somebody cordoned {standby}. Only with the label {label} does a standby lose a cordon."),
    "standby_no_longer": _("{standby} is no longer a standby."),
    "standby_marked_by_rescue": _("Standby {standby} carries the marks of a rescue."),
    "standby_released_meanwhile": _("Standby {standby} was released in the meantime."),
    "standby_gone": _("The cluster no longer has the standby."),
    "standing_in": _("{standby} stands in for this node. {why}"),
    "standing_in_since": _("{standby} has stood in for this node since rescue {rescue}."),
    "standby_again": _("The node is a standby again and no longer stands in for {origin}."),
    "released_by": _("Released by {by}."),
    "standby_unused": _("Rescue {rescue} ended without using the standby."),
}
