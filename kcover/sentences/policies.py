"""Invalid policies, and warnings about valid ones. Shown after a position in the text, so without a full stop."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "did_you_mean": _(" (did you mean {name}?)"),
    "belongs_in_rule": _(" (it belongs in each rule: spec.rules[].{key})"),
    # What to write instead.
    "write_value": _('write "{text}"'),
    "write_example": _('write "{text}" for example'),
    "write_in_quotes": _("write it in quotes"),
    "quoted": _('"{text}"'),
    "quoted_example": _('"{text}" for example'),
    # YAML.
    "yaml_too_large": _("The text has {bytes} bytes. The limit is {most}."),
    "yaml_not_utf8": _("Byte 0x{byte} is not UTF-8. Save the file as UTF-8."),
    "yaml_character": _("Character {character} is not allowed in YAML."),
    "yaml_tabs": _("YAML cannot be indented with tabs; use spaces"),
    "yaml_invalid": _("Invalid YAML: {error}"),
    "yaml_too_deep": _("Nested more than {most} levels deep."),
    "yaml_tag": _("The tag {tag} is not supported. Remove it."),
    "yaml_duplicate_key": _("Duplicate key {key}, first used in line {line}."),
    "yaml_key_type": _("A key must be a string, not a list or a mapping."),
    "yaml_merge_key": _("Merge keys (<<) are not supported. Write the keys out."),
    "yaml_ambiguous": _('YAML 1.1 and 1.2 read {text} differently; write "{text}" to mean the text'),
    "yaml_alias_loop": _("Alias *{anchor} refers to itself."),
    "yaml_alias_unknown": _("Alias *{anchor} has no anchor &{anchor} before it."),
    "yaml_too_many_values": _("More than {most} values with aliases expanded."),
    # Any document.
    "unknown_key": _("Unknown key {key}: known keys are {known}{hint}"),
    "unknown_choice": _("Unknown {key} {value}: use one of {known}{hint}"),
    "not_a_string": _("{key} must be a string: {instead}"),
    "duration_zero": _('{key} must be greater than zero: write "20min" for example, or remove it'),
    "labels_type": _("labels must be a mapping of label names to strings"),
    "label_name_invalid": _("{name} is not a label name"),
    "label_value_invalid": _('A label value must be a short string, "true" for example, not {value}.'),
    "policy_type": _("A policy must be a mapping with apiVersion, kind, metadata and spec."),
    "policy_version_unknown": _("Unknown apiVersion {version}: write {known}."),
    "policy_kind_unknown": _("Unknown kind {kind}: write {known}{hint}"),
    "policy_name_invalid": _("A policy needs a name of lower-case letters, digits, '-' and '.', at most 253."),
    "needs_own_version": _("{key} needs apiVersion: {version}"),
    # Rules.
    "rules_spec_missing": _("spec is missing: write spec: with a list of rules"),
    "rules_type": _("rules must be a list with at least one rule"),
    "rule_type": _("A rule must be a mapping with priority, errorCode, nodeSelector and actions."),
    "rule_without_actions": _("A rule needs at least one action, for example cordon."),
    "drain_timeout_unused": _("onDrainTimeout needs the action drain"),
    "priority_invalid": _("priority must be a whole number of at least 0, not {value}"),
    "selector_type": _("nodeSelector must be a mapping with operator (any or all) and labels"),
    "operator_missing": _('operator is missing: write "any" (one label is enough) or "all"'),
    "operator_unknown": _('operator {value} is unknown: write "any" (one label is enough) or "all"'),
    "limit_quoted": _("Write {value} without quotes: a count is a whole number."),
    "limit_invalid": _('{value} is not a limit: write a whole number from 1, or a percentage such as "10%"'),
    "approval_type": _("approval must be true or a mapping: write approval: {example}"),
    "approval_required_type": _("required must be true or false, not {value}"),
    "approvers_invalid": _("approvers must be 1, or 2 for two people, not {value}"),
    "verify_type": _("verify must be true or a mapping: write verify: {example} if the node has no agent"),
    "probation_unreturned": _("probation needs an action that returns the node: add unCordon"),
    "probation_long": _("probation must be at most {days}day"),
    "validate_unisolated": _("validate needs an action that isolates the node: add cordon, or another of {known}"),
    "escalate_invalid": _("escalate must be true, or a sentence of at most 500 characters that says what to do"),
    # Faults.
    "match_type": _("match must be a mapping with at least one of {known}"),
    "codes_type": _('errorCode must be a list of strings, ["62"] for example; leave it out for any code'),
    "code_invalid": _("An error code is a string of digits: write {instead}, not {value}."),
    "sxid_invalid": _("An SXid code is a string of digits: write {instead}, not {value}."),
    "list_empty": _("{key} must be a list with at least one entry: add one, or remove {key}"),
    "listed_twice": _("{name} appears twice"),
    "fault_kind_unknown": _("Unknown kind {kind}: use one of {known}{hint}"),
    "check_name_invalid": _('{name} is not a check name: write "remapped" for example'),
    "match_codes_type": _("codes must be a mapping from kinds to lists of codes; the kinds are {known}"),
    "match_code_invalid": _("{code} is not a code of kind {kind}: it must match {form}"),
    "match_application_faults": _(
        "applicationFaults must be true or false, not {value}: write false to leave application faults out"
    ),
    "match_companion": _("{key} needs {other}: write {other}: {example} beside it, for example"),
    "min_count_invalid": _("minCount must be a whole number from 1 to {most}, not {value}"),
    # Actions.
    "actions_type": _("actions must be a list of mappings with a name"),
    "action_type": _("An action must be a mapping with a name."),
    "action_unknown": _("Unknown action {name}: use one of {known}{hint}"),
    "action_of_own_version": _("Action {name} needs apiVersion: {version}."),
    "attribute_type": _("attribute must be a mapping"),
    "attribute_missing": _("{name} needs the attribute {attribute}"),
    "attribute_alone": _("{attribute} needs {other}: add {other} to the same action"),
    "attribute_unknown": _("{name} has no attribute {attribute}: it takes {known}"),
    "attribute_unused": _("{name} has no attribute {attribute}: it takes no attribute"),
    "companion_missing": _("{name} needs {needed}: add {first} before it"),
    "actions_conflict": _("{name} and {other} in one rule: {why}; remove one of the two"),
    "stop_or_restart_jobs": _("a job is either restarted or stopped"),
    "power_cycle_resets_gpus": _("a power cycle resets the GPUs as well"),
    "isolates_whole_node": _("the other one isolates the whole node"),
    "offline_repairs_node": _("the other system repairs the node"),
    "repair_name_invalid": _("Invalid {name}: it has 1 to {most} printable characters and no space at its ends"),
    "reboot_resets_gpus": _("a reboot resets the GPUs as well"),
    "truth_invalid": _('{name} must be "true" or "false", not "{value}"'),
    "choice_unknown": _("Unknown {name} {value}: use one of {known}."),
    "key_invalid": _("{value} is not a valid {what} key"),
    "label_of_kubernetes": _(
        "The label {value} belongs to Kubernetes and stays as it is. Use a domain of your own, or {example}."
    ),
    "taint_of_control_plane": _("The taint {value} belongs to the control plane and stays as it is. Use another key."),
    "label_reserved": _("Labels that begin with {prefix} belong to the portal. Use another name."),
    "text_invalid": _("{value} is not a valid {what} value"),
    "channel_of_rule_invalid": _('{value} is not a channel name; write for example "on-call"'),
    "source_of_rule_invalid": _('{value} is not the name of a source; write for example "dcgm"'),
    "checkpoint_query_length": _("A query must have 1 to {most} characters, and no control characters."),
    "checkpoint_query_invalid": _("A query must name {job} between quotes, and no placeholder elsewhere: {example}"),
    "message_length": _("A message must have 1 to {most} characters."),
    "address_length": _(
        "An address must have at most {most} characters and no spaces. Write for example https://repair.example/hook."
    ),
    "address_invalid": _("{value} is not an address; write for example https://repair.example/hook"),
    "address_masked": _("The address is masked. Write the whole address, or name a channel instead."),
    "address_with_key": _(
        "The address of {action} has a part that may be a key. If it is one, name a channel instead, whose address is"
        " encrypted."
    ),
    "address_password": _(
        "The address must not contain a password, because everybody who reads the policy could read it."
    ),
    "check_list_invalid": _(
        '{value} is not a list of checks; separate the names by commas without spaces, for example "pciebw,remapped"'
    ),
    # Standbys.
    "matches_spec_missing": _("spec is missing: write spec: with a list of matches"),
    "matches_type": _("matches must be a list with at least one pair of originNode and targetNode"),
    "standby_match_type": _("A match must be a mapping with the labels of originNode and of targetNode."),
    "side_missing": _("{side} is missing: write its labels, or {example} for any"),
    # The text as a whole, and the installation.
    "pack_unknown": _("Unknown pack {pack}: use one of {known}."),
    "pack_mode_unknown": _("Rules have no mode {mode}: use one of {known}."),
    "policies_missing": _("The text contains no policy."),
    "policy_twice": _("Policy {policy} is defined twice, first in line {line}."),
    "standby_policy_twice": _("Only one WarmStandbyPolicy is allowed. Put these matches into {policy}."),
    "standby_policy_active": _(
        "Only one WarmStandbyPolicy is allowed. {policy} is active. Use its name or disable it."
    ),
    "rule_channel_unknown": _("Unknown channel {channel}. Use one of {known}."),
    "rule_channel_none": _("Unknown channel {channel}. An admin creates channels on the Notifications page."),
    "rule_source_unknown": _("Unknown source {source} of kind prometheus. Use one of {known}."),
    "rule_source_none": _("Unknown source {source}. An admin creates sources of kind prometheus on the Sources page."),
    "other_policies": _("The text must contain only the policy {policy}. It contains {found}."),
    "rollback_reason": _("Required to roll back to an earlier revision."),
    # Warnings.
    "xid_of_program": _(
        "{kind} {code} is caused by a program and is not a fault of the node, but this rule acts on nodes for it"
    ),
    "sxid_corrected": _(
        "{kind} {code} is corrected by the switch itself and is not a fault of the node, but this rule acts on nodes "
        "for it"
    ),
    "any_fault": _("any fault"),
    "any_fault_of_kind": _("any fault of kind {kind}"),
    "code_uncataloged": _("{kind} {code} is not in the catalog"),
    "same_priority": _(
        "{first} and {second} both have priority {priority} and can match {fault} on one node: the rule of the older "
        "policy runs; within one policy, the first rule runs{note}"
    ),
    "second_never_runs": _("; {second} never runs"),
    "rule_covered": _("{second} never runs: {first} comes before it and matches the same faults{note}"),
    "rule_shadowed": _("{second} does not act on {fault}: {first} comes before it{note}"),
    "rule_of_any_fault": _(
        "{rule} names no fault and selects no node: it takes work away for every Xid and SXid of a node, on every node."
        " List codes in errorCode, or select nodes"
    ),
    "overlaps_left_out": _("Only the first {most} overlaps of rules are listed. Correct them and validate again."),
    "shadow_does_nothing": _("; {first} is in shadow mode and does nothing"),
    # Changes of a rule in a text.
    "rule_text_unreadable": _("The text is not valid YAML (line {line}). Correct it first."),
    "rule_text_aliases": _("The text uses YAML aliases. Change the rule in the text."),
    "rule_text_brackets": _("The rule is written in brackets with comments or on one line. Change it in the text."),
    "rule_text_style": _("The rule is written in a way that the form cannot keep. Change it in the text."),
    "rule_text_gone": _("The text has no rule {rule}. Choose another one."),
    "rule_text_expiry": _(
        "A request expires only where the rule requires an approval. Choose how many people approve, or clear the time."
    ),
    "rule_text_choice": _("Choose one of the offered values."),
    # Tries.
    "try_own_open": _("Your earlier try {number} is still running. Wait for it, or cancel it."),
    "tries_full": _("{most} tries are waiting already. Try again in {wait}."),
    "try_invalid_now": _("The text became invalid: the active policies changed meanwhile. Try it again."),
    "try_interrupted": _("The try was interrupted {count} times. Try fewer incidents or rules."),
    "try_too_long": _("The try took longer than {most}. Try fewer incidents or rules."),
    # Revisions.
    "policy_unknown": _("Unknown policy {policy}."),
    # Why a revision was published or taken out of force.
    "policy_built_in": _("Published with the built-in policies."),
    "policy_from_pack": _("Published from the pack {pack}."),
    "policy_from_file": _("Published from the file {file}."),
    "policy_from_object": _("Published from the cluster's object ({kind})."),
    "policy_object_gone": _("The cluster's object was deleted or is no longer accepted."),
    "policy_taken_over": _("Replaced by a policy of the portal. The object {policy} of cluster {cluster} waits."),
    "policy_rolled_back": _("Back to revision {revision}."),
    # Policies that a cluster keeps as objects.
    "policy_is_object": _(
        "Cluster {cluster} keeps the policy {policy} as an object: change it there, or delete the object."
    ),
    "policy_object_name": _("The name {policy} belongs to another policy: give the object another name."),
    "policy_object_action": _(
        "{rule}: only a policy of the portal may contain {action}. Remove it, or publish the policy in the portal."
    ),
    "policy_object_application": _(
        "{rule}: {kind} {code} is not a fault of the node, and an object covers no other. Remove it, or publish the"
        " policy in the portal."
    ),
    "policy_object_after": _("{own} of the portal comes first, for example for {fault}: {rule} then does nothing."),
    "policy_object_unreadable": _("The spec cannot be written as YAML: {error}"),
    "policy_objects_keys": _("The portal reads at most {most} keys in all policies that a cluster keeps as objects."),
    "policy_objects_many": _("The portal reads at most {most} policies of a cluster."),
    "policy_objects_large": _(
        "The portal reads at most {rules} rules and {size} MiB in all policies that a cluster keeps as objects."
    ),
    "policy_not_active": _("Policy {policy} is not active. Give the revision to compare with."),
    "revision_unknown": _("Policy {policy} has no revision {revision}."),
    "revision_already_active": _("Revision {revision} of {policy} is already active."),
    "revision_changed": _(
        "You edited {edited} of {policy}, but {present}. Review the current version and apply again."
    ),
    "revision_named": _("revision {revision}"),
    "no_revision_yet": _("no policy yet"),
    "revision_is_active": _("revision {revision} is active"),
    "policy_is_inactive": _("it is not active"),
    "standby_policy_published": _("Another WarmStandbyPolicy was published at the same time. Review it first."),
}
