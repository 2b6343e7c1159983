"""Parts by serial number: why a person should look at one, and what its faults say."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # These name no other node: not everyone who sees the part may see where else it was.
    "part_returned_of_repair": _("Part {serial} was under repair {repair} in another place, and was not proved there."),
    "part_removed_by_repair": _("Repair {repair} took part {serial} out of a machine. It is in use again."),
    "part_returned_with_faults": _("Part {serial} had {count} faults elsewhere in the {days} days before it left."),
    "part_on_two_nodes": _("Another node reports part {serial} at the same time. One serial number is wrong."),
    "part_not_flagged": _("Nothing about this part in this place needs a review."),
    "fault_follows_part": _("The faults follow the part: it failed in {count} slots in which no other part failed."),
    "fault_follows_slot": _("The faults follow the slot: {count} different parts failed in {slot}."),
}
