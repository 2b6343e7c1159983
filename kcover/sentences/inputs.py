"""Invalid input: what is wrong with one field of a form or request. Shown beside the field, so without a full stop."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "value_invalid": _("{problem}"),
    "setting_unknown": _("unknown setting {name}; use one of {known}"),
    # Channels and routes.
    "channel_name_invalid": _("use lower-case letters, digits and '-', at most 63 characters, e.g. on-call"),
    "channel_exists": _("channel {channel} already exists"),
    "channel_in_use": _("channel {channel} is used by rule {rules}; change the rule first"),
    "kind_unknown": _("unknown kind {kind}; use one of {known}"),
    "event_unknown": _("unknown kind {kind}; use {known}"),
    "events_missing": _("select at least one event"),
    "event_not_paged": _("pagers do not accept {kind}; use {paged}. End events need no route"),
    "severity_unknown": _("unknown severity {severity}; use one of {known}"),
    "language_unknown": _("unknown language {language}; use one of {known}"),
    "person_of_webhook": _("a webhook cannot deliver to a person"),
    "person_of_pager": _("a pager delivers to whoever is on call, not to one person"),
    "person_disabled": _("this person cannot sign in"),
    "seconds_out_of_range": _("must be from 0 to {most} seconds"),
    "remind_of_pager": _("pagers do not support reminders; set up escalation in the paging service"),
    "remind_out_of_range": _("write seconds from 0 (never) to {most}, or nothing for half of the time"),
    "recipients_of_url": _("channels of kind {kind} have a url, not recipients"),
    "url_of_mail": _("e-mail channels have recipients, not a url"),
    "url_with_query": _("must not contain '?' or '#'"),
    "url_invalid": _("write an address such as https://hooks.example/T0/B0, without spaces, at most 1000 characters"),
    "url_with_password": _("must not contain a user or password; they would appear in error messages"),
    "mail_unset": _("no mail server; set KCOVER_MAIL_URL first"),
    "recipients_count": _("must list 1 to {most} e-mail addresses"),
    "recipient_invalid": _("{address} is not an e-mail address"),
    "secret_of_pagerduty": _("must be the integration key of an Events API v2 integration: 32 letters and digits"),
    "secret_of_opsgenie": _("must be the key of an API integration, alone: 16 or more letters, digits and hyphens"),
    "secret_unused": _("channels of kind {kind} have no secret"),
    "secret_length": _("must have {least} to {most} characters"),
    "secret_too_long": _("must have at most {most} characters"),
    # Maintenance windows.
    "end_before_start": _("must be after the start"),
    "end_in_past": _("must be in the future"),
    "window_too_long": _("a window lasts at most {days} days; pause the cluster instead"),
    "cluster_required": _("select a cluster when you set a pool or node"),
    "pool_and_node": _("set a pool or a node, not both"),
    # The selection of nodes, and check runs.
    "nodes_missing": _("cluster {cluster} has no node {nodes}"),
    "job_selector_invalid": _("must be namespace:key=value, not {selector}"),
    "job_query_rejected": _("cluster {cluster} rejected the query: {error}"),
    "job_without_pods": _("no scheduled pod in {namespace} has the label {label}"),
    "label_selector_invalid": _("must be key=value, not {selector}"),
    "label_without_nodes": _("no node has the label {label}"),
    "cluster_not_answering": _("cluster {cluster} does not answer: {error}"),
    "cluster_without_gpus": _("The cluster has no GPU nodes."),
    "check_runs_full": _("{count} check runs are running in cluster {cluster}: wait for one to finish, or stop one"),
    "check_ring_too_large": _("a ring of iperf has at most {most} nodes: set batch to at most that or leave it out"),
    "check_run_ended": _("check run {run} has ended"),
}
