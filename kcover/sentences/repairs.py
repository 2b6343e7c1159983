"""Repairs: why one was opened, what refuses a verb, and why one needs a person."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Why a repair was opened.
    "repair_reported_by": _("Reported by {by}."),
    "repair_reported_by_because": _("Reported by {by}: {why}"),
    "repair_of_rescue": _("Rescue {rescue} called a person."),
    "repair_on_probation": _("The node failed again on probation: {fault} opened rescue {rescue}."),
    # What refuses a verb or a change.
    "repair_verb_not_now": _("{verb} is not possible in state {state}. Possible: {possible}."),
    "repair_verb_unknown": _("{verb} is not a verb of repairs. Use one of: {known}."),
    "repair_closed_already": _("The repair is closed. Report a new one if the part is faulty again."),
    "repair_not_validated": _("The machine has passed no validation since it was returned. Validate it first."),
    "repair_validation_runs": _("The validation of the machine is running. Close the repair when it has passed."),
    "repair_validation_failed": _("The machine failed its last validation. It must be repaired again."),
    "repair_open_already": _("Repair {repair} of this part of {node} is open. Change that one."),
    "repair_due_past": _("Must be in the future."),
    "repair_due_far": _("Must be within {years} years."),
    "repair_part_kind": _("Must be a word in lower case such as gpu, nic or power-supply, at most {most} characters."),
    "repair_node_unknown": _("Cluster {cluster} has no node {node}."),
    # What the portal saw.
    "repair_validation_begun": _("Validation {validation} of the returned machine has begun."),
    "repair_validation_passed": _("The returned machine passed validation {validation}."),
    "repair_failed_validation": _("The returned machine failed validation {validation}."),
    # Why it needs a person.
    "repair_overdue": _("It was due at {due}."),
    "repair_without_owner": _("Nobody owns it {span} after it was reported."),
    "repair_without_date": _("It has no date {span} after it was reported."),
}
