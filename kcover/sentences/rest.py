"""Refused REST requests. A sentence about a field or parameter is shown beside it."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # The credential of a request.
    "token_invalid": _("The token is unknown, expired or revoked. Create one with manage.py token create."),
    "csrf_failed": _("The CSRF token is missing or incorrect. Reload the page, or send a bearer token."),
    "wall_token": _("Wallboard tokens only open the page /wall/."),
    "agent_token": _("Agent tokens can only be used for /api/v1/agent/ and preflight reports."),
    "decision_system_token": _(
        "Decision system tokens can only request plans, cancel their own plans, and pause. Use an operator token."
    ),
    "rescue_of_others": _("Decision systems can only cancel their own plans. Use an operator token."),
    "token_required": _("Requires a token. In the browser, use the Checks page."),
    "person_required": _("Tokens cannot approve rescues or create approval links."),
    "no_role": _("Your account has no role. Ask an administrator to assign one."),
    "role_required": _("Requires the role {role} {where}."),
    "in_cluster": _("in cluster {cluster}"),
    "in_all_clusters": _("for all clusters"),
    "in_any_cluster": _("in any cluster"),
    "role_for_all_clusters": _(
        "Without a cluster this affects all clusters and requires the role {role} for all of them. Name a cluster in"
        " the body: {example}."
    ),
    "signature_invalid": _("{header} must sign the rescue id, a newline and the body with the cluster's secret."),
    # The content of a request.
    "unknown_endpoint": _("No endpoint at {path}. See /api/docs/."),
    "unknown_action": _("Unknown action {action}. Use one of {known}."),
    "not_found": _("Not found, or not visible to you."),
    "no_evidence": _("Evidence {number} of rescue {rescue} is not stored: it did not arrive, or it was deleted."),
    "delivery_not_failed": _("Delivery {delivery} has not failed, or its channel was deleted."),
    "places_taken": _("Too many requests of this kind are running. Try again in {wait}."),
    "places_own_taken": _("Your earlier request is still loading. Try again in {wait}."),
    "busy": _(
        "{count} callers are already waiting for check runs. No check was started. Retry in a moment, or add wait=0 and"
        " read the run later."
    ),
    # The body as a whole.
    "parse_error": _("Invalid JSON: {problem}"),
    "json_too_deep": _("nested deeper than {levels} levels"),
    "json_lone_surrogate": _("contains a lone surrogate; remove it"),
    "json_duplicate_key": _("duplicate key {key}"),
    "json_constant": _("{name} is not valid JSON; use null or omit the key"),
    "too_large": _("The body has {bytes} bytes. The limit is {limit}."),
    "text_too_large": _("The text has {bytes} bytes. The limit is {limit}."),
    "more_than": _("more than {number}"),
    "unsupported_media_type": _('Unsupported media type "{media_type}" in request. Send {accepted}.'),
    "body_empty": _(
        "The body is empty. Send the policies as YAML (Content-Type: application/yaml) or as JSON {example}."
    ),
    # Headers.
    "idempotency_key_length": _("Must have 1 to {most} characters."),
    "idempotency_key_reused": _("{header} {key} was used for a different request. Use a new key."),
    "if_none_match_invalid": _("Must be *, which requires that the policy does not exist."),
    "etag_invalid": _("If-Match {value} is not a policy ETag. Use the revision number in quotes."),
    "no_active_policy": _("There is no active policy of this name."),
    # Parameters and fields.
    "unknown_parameter": _("Unknown parameter. {help}"),
    "parameters_near": _("Did you mean {near}? Supported: {known}."),
    "parameters_known": _("Supported: {known}."),
    "parameters_none": _("There are no parameters here."),
    "parameter_not_time": _(
        "{given} is not a time. Write a date (2026-11-27), a time (2026-11-27T08:00:00Z) or a duration back "
        "from now (24h, 7day)."
    ),
    "parameter_not_choice": _("{given} is not supported here. Supported: {known}."),
    "parameter_not_number": _("{given} is not a number. Write a whole number."),
    "unknown_field": _("Unknown field."),
    "nul_character": _("Must not contain NUL characters."),
    "unknown_cursor": _("Unknown cursor. Use one from next or previous."),
    "not_an_object": _("Must be a JSON object."),
    "text_too_long": _("Must have at most {most} characters."),
    "exclusive": _("Cannot be combined with {other}."),
    "unknown_cluster": _("Unknown cluster {cluster}."),
    "unknown_node": _("Unknown node {node}. Use cluster/name."),
    "unknown_user": _("Unknown user {user}."),
    "unknown_channel": _("Unknown channel {channel}."),
    "code_not_numeric": _("Must be a numeric code such as 62."),
    "code_missing": _("Must be a code."),
    "revision_not_a_number": _("Must be a revision number."),
    "policy_missing": _("The text does not contain the policy {policy}."),
    "policy_invalid": _("The text has {count} errors. Nothing was applied."),
    "policy_invalid_once": _("The text has 1 error. Nothing was applied."),
    "problem_at": _("line {line}, column {column}: {problem}"),
    "resume_mode": _("Must be shadow, approve or enforce."),
    "topology_invalid": _("Must be an object of label keys by domain; the domains are {known}."),
    "domain_unknown": _("Unknown domain {domain}; use some of {known}."),
    "topology_key_invalid": _("{domain}: {key} is not the key of a label, such as example.com/pool."),
    "namespaces_invalid": _("Must be names of namespaces, separated by commas, or * for all, not {value}."),
    "storage_class_invalid": _("Must be the name of a storage class (a-z, 0-9, '-' and '.'), not {value}."),
    # Parameters of /status.
    "cluster_ambiguous": _("Required: you have access to several clusters."),
    "cluster_none": _("You have access to no cluster."),
    "no_gpu_nodes": _("Cluster {cluster} has no GPU nodes."),
    "check_unsupported": _("check not supported: {checks}; supported: {known}"),
    "requires_check": _("Requires check={check}."),
    "plane_unknown": _("Unknown plane {plane}; supported: data, mgmt."),
    "plane_of_data_only": _("Only for plane=data. plane=mgmt has one server and one client for each node."),
    "one_of_parameters": _("Set either {first} or {second}."),
    "workload_unknown": _("Unknown workload {workload}; supported: ring."),
    "names_missing": _("Must name at least one, or be omitted."),
    "names_too_long": _("Must have at most {most} characters. Use nodelabel instead."),
    "too_many_peers": _("Must name at most {most} nodes."),
    # Preflight reports.
    "workload_missing": _("Set the workload in the report or beside it."),
    "workload_name_invalid": _("Must be a name of at most {most} characters."),
    "other_workload": _("The report names {workload}."),
}
