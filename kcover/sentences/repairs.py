"""Repairs: why one was opened, what refuses a verb, and why one needs attention."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Why a repair was opened.
    "repair_reported_by": _("Reported by {by}."),
    "repair_reported_by_because": _("Reported by {by}: {why}"),
    "repair_of_rescue": _("Escalated by rescue {rescue}."),
    "repair_by_hand": _("{by} took the node offline in rescue {rescue}."),
    "repair_by_rule": _("Rule {rule} requested it in rescue {rescue}."),
    "repair_on_probation": _("The node failed again on probation: {fault} opened rescue {rescue}."),
    "repair_of_lemon": _("A lemon: {faults} faults since its last repair, in {days} d at most."),
    # What refuses a verb or a change.
    "repair_verb_not_now": _("{verb} is not possible in state {state}. Possible: {possible}."),
    "repair_verb_unknown": _("{verb} is not a verb of repairs. Use one of: {known}."),
    "repair_closed_already": _("The repair is closed. Report a new one if the part is faulty again."),
    "repair_not_validated": _("The machine has passed no validation since it was returned. Validate it first."),
    "repair_validation_runs": _("The validation of the machine is running. Close the repair when it has passed."),
    "repair_validation_failed": _("The machine failed its last validation. It must be repaired again."),
    "repair_other_machine": _(
        "Another machine has the node's name. "
        "Validate the machine with the serial number of this repair, or correct it."
    ),
    "repair_open_already": _("Repair {repair} of this part of {node} is open. Change that one."),
    "repair_due_past": _("Must be in the future."),
    "repair_due_far": _("Must be within {years} years."),
    "repair_part_kind": _("Must be a word in lower case such as gpu, nic or power-supply, at most {most} characters."),
    "repair_node_unknown": _("Cluster {cluster} has no node {node}."),
    # What refuses an event of a vendor.
    "vendor_signature_invalid": _(
        "{header} must be the signature of the sink's name, {timestamp} and the body, made with the sink's key. "
        "The sink must be enabled and name a vendor."
    ),
    "vendor_timestamp_stale": _("{timestamp} is {span} away from the portal's time. The limit is {limit}."),
    "vendor_repair_unknown": _("{vendor} has no repair {repair}."),
    "vendor_detail_surplus": _("The event {event} does not accept this field. Leave it out."),
    "vendor_comment_missing": _("The event {event} needs a comment."),
    "vendor_assignee_role": _("An owner whom a vendor names must not begin with {prefix}."),
    "vendor_due_far": _("Must be within {days} days."),
    "vendor_delivery_reused": _("Delivery {delivery} was already used with another body. Use a new id."),
    "jira_signature_invalid": _(
        "{header} must be sha256= and the HMAC-SHA-256 of the body, made with the sink's secret for incoming messages. "
        "The sink must be an enabled Jira sink with such a secret."
    ),
    "jira_issue_unknown": _("{issue} is not the issue of a repair that the sink {sink} follows."),
    "mail_signature_invalid": _(
        "{header} must be the signature of the sink's name, {timestamp} and the mail, made with the sink's secret for "
        "incoming messages. The sink must be an enabled mail sink with such a secret."
    ),
    "mail_unreadable": _("The body is not a mail that can be read (RFC 5322)."),
    "mail_automatic": _("The mail was sent by a program, such as an absence note. It changes nothing."),
    "mail_sender_missing": _("The mail must have exactly one sender (From)."),
    "mail_token_missing": _("The subject must keep the mark of one repair, such as [kcover 41.…]."),
    "mail_token_wrong": _("The mark in the subject does not belong to repair {repair}. Answer a mail of the portal."),
    "mail_sender_unknown": _("{sender} may not answer. The option senders of the sink has the list."),
    "mail_without_text": _("The mail has no plain text. Mails in HTML alone are not read."),
    "mail_empty": _("The event {event} needs a comment above the quoted text."),
    "mail_due_invalid": _("{value} is not a date such as 2026-12-01."),
    "vendor_rate": _("{sink} sends too many events. The limit is {rate} per second, {burst} at once."),
    # What the portal saw.
    "repair_validation_begun": _("Validation {validation} of the returned machine has begun."),
    "repair_validation_passed": _("The returned machine passed validation {validation}."),
    "repair_passed_by_name": _(
        "The machine with the node's name passed validation {validation}. Its serial number is unknown."
    ),
    "repair_without_pair_test": _(
        "Only the machine itself reported it. Run a pair test (profile burn-in): there another node measures, too."
    ),
    "repair_failed_validation": _("The returned machine failed validation {validation}."),
    # Why it needs attention.
    "repair_overdue": _("It was due at {due}."),
    "repair_without_owner": _("Nobody owns it {span} after it was reported."),
    "repair_without_date": _("It has no date {span} after it was reported."),
}
