"""What needs attention: what it is, why it waits, and what refuses an act about it."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # The fault of a need. Each names a thing inside of a sentence.
    "need_xid": _("Xid {code}"),
    "need_sxid": _("SXid {code}"),
    "need_check": _("check {code}"),
    "need_condition": _("node condition {code}"),
    "need_alert": _("alert {code}"),
    "need_pod": _("pod {code}"),
    "need_preflight": _("preflight {code}"),
    "need_agent_silent": _("Agent silent"),
    "need_overflow": _("Too many distinct faults"),
    "need_other_fault": _("{kind} {code}"),
    # Where it is. Each names a thing inside of a sentence.
    "need_on_nodes": _("{n} nodes"),
    "need_on_nodes_leaf": _("{n} nodes on leaf switch {value}"),
    "need_on_nodes_nvlink": _("{n} nodes in NVLink domain {value}"),
    "need_on_nodes_rack": _("{n} nodes in rack {value}"),
    # What needs attention.
    "need_ledger": _("The audit log of {cluster} differs from its anchor; automation is paused."),
    "need_storm": _("Storm: {symptom} on {where}."),
    "need_symptom_job": _("job {value}"),
    "need_symptom_switch": _("switch {value}"),
    "need_symptom_version": _("agent version {value}"),
    "need_fault": _("{fault} on {where}: not handled yet."),
    "need_rescue": _("{fault} on {where}: the rescue needs attention."),
    "need_manual_rescue": _("The rescue of {where} needs attention."),
    "need_approval": _("Approve the rescue of {where} ({fault})?"),
    "need_manual_approval": _("Approve the rescue of {where}?"),
    "need_job": _("Training job {job} needs attention."),
    "need_repair": _("The repair of {where} needs attention."),
    "need_part": _("Part {serial} in {where} needs a review."),
    "need_watch": _("The watch on cluster {cluster} is disconnected."),
    "need_source": _("Source {source} is failing."),
    # Why it waits.
    "need_ledger_why": _("Check the nodes, resume automation, then close the incident."),
    "need_storm_why": _("Drains, resets and reboots of its nodes wait until a person closes the storm."),
    "need_undecided": _("No decision has been made yet."),
    "need_uncovered": _("No rule covers {fault}."),
    "need_stopped": _("An operator stopped rescue {rescue}: {why}"),
    "need_stopped_unsaid": _("An operator stopped rescue {rescue}."),
    "need_still_working": _("The node still takes work."),
    "need_asks": _("Rule {rule} requires approval."),
    "need_asked_by": _("Requested by {by}. Someone else must approve it."),
    "need_unexplained": _("No reason was recorded."),
    # What refuses an act about a need.
    "need_unknown": _("No such need. It is over, or it is outside your part of the fleet."),
    "need_not_acknowledged": _("Nobody has acknowledged it, or somebody has just withdrawn the acknowledgement."),
    "need_not_snoozed": _("It cannot be snoozed: it must stay in sight. Acknowledge or assign it instead."),
    "need_snooze_past": _("Must be in the future."),
    "need_snooze_far": _("Must be within {days} days."),
    "need_assignee_unknown": _("{name} is not a user who may act here."),
}
