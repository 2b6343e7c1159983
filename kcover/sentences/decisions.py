"""Reasons of decisions: rules, and the conditions that are checked once a rule matches."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # No rule is evaluated.
    "node_unknown": _("Cluster {cluster} has no node {node}. Its reports are kept, but nothing is done to it."),
    "node_without_gpus": _("Node {node} has no GPUs. Policies act on GPU nodes only."),
    "drill_recorded": _("Drill: the log line was written by a program, and this cluster only records drills."),
    "left_to_external": _("This cluster leaves every decision to an external system (decision_mode external)."),
    # Rules.
    "no_policy": _("No policy is in force."),
    "rule_matches": _("Rule {rule} (priority {priority}) matches {kind} {code}."),
    "rule_mismatch": _("Rule {rule} does not apply. {why}"),
    "code_and_labels_match": _("Code and labels match."),
    "lists_xids": _("It covers Xids only; this fault is of kind {kind}."),
    "lists_others": _("It covers {listed}, not {code}."),
    "names_others": _("It covers {named}, not {kind} {code}."),
    "seen_too_seldom": _("Requires {wanted} occurrences within {within}; {seen} were seen."),
    "means_xids": _("It covers Xids and SXids, not faults of kind {kind}."),
    "program_fault": _("{kind} {code} is not a node fault; only a rule that lists it matches."),
    "harmless_report": _("{kind} {code} reports no fault of the node; only a rule that lists it matches."),
    "application_faults_left_out": _("{kind} {code} is an application fault; the rule leaves these out."),
    "object_after_own": _("Rule {own} of the portal covers this fault, and requires more occurrences."),
    "object_adds_node_faults_only": _("A policy that a cluster keeps as an object covers faults of the node only."),
    "no_label": _("The node has none of these labels: {labels}."),
    "not_all_labels": _("The node does not have all of these labels: {labels}."),
    # Conditions that are checked once a rule matches.
    "excluded": _("Node {node} is excluded (label {label}=true)."),
    "paused": _("Automation is paused."),
    "paused_because": _("Automation is paused: {why}"),
    "resume_first": _("Resume automation first."),
    "shadow_no_writes": _("Shadow mode: nothing is written to the cluster."),
    "rescue_open": _("Rescue {rescue} must finish first. A node has one rescue at a time."),
    "left_to_people": _("Rescue {rescue} needs attention. Release the node to let policies act again."),
    "done_already": _("Rescue {rescue} already ran the same plan. The node is still isolated."),
    "shadow": _("Shadow mode: the portal recorded this plan and did not run it."),
    "approve": _("Approve mode: approval required."),
    "approve_after_isolation": _("Approve mode: the node is isolated at once. The other steps need approval."),
    "approve_after_notice": _("Approve mode: operators are notified at once. The other steps need approval."),
    "approve_isolates_only": _("Approve mode: the plan takes no running work away, so nobody has to approve it."),
    "nothing_holds_back": _("Nothing blocks this action."),
    "approval_required": _("The rule requires approval first."),
    "reboots_repeat": _(
        "Rescues rebooted this node, or reset one of its GPUs, {rescues} times within {within}. An "
        "operator must inspect it."
    ),
    "inspection": _("{reboots} reboots within {within} did not fix {kind} {code}. The hardware must be inspected."),
    "expired": _("Last seen at {seen}, more than {within} ago. The action that was held back is dropped."),
    "rebooted_since": _("Node {node} has rebooted since this fault was seen, and the fault has not come back."),
    "boot_not_shown": _(
        "It is unclear whether this fault is from boot {boot} or a later one. Waiting for the "
        "cluster, a repeat of the fault or an operator."
    ),
    "external_nothing": _("{system} returned no action."),
    "external_silent": _("{system} was asked to decide and gave no usable answer: {why}"),
    # The answer to a decision system at the limit of its plans, in KCE's own words.
    "plan_limit": _("Exceed the maximum plans limit {{{limit}}}"),
}
