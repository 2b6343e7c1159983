"""Sources: invalid settings, items and requests. Most sentences are shown beside a field."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # An item that a source sent.
    "source_not_text": _("Must be a string, not {value}."),
    "source_not_storable": _("Contains a NUL or an unpaired surrogate. Remove it."),
    "source_item_refused": _("The database does not store it: {problem}."),
    "source_not_boolean": _("Must be true or false, not {value}."),
    "source_not_object": _("Must be an object, not {value}."),
    "source_not_list": _("Must be a list, not {value}."),
    "source_list_long": _("Has {count} items. A request may have {most}. Send them in several requests."),
    "source_node_missing": _("Must name a node."),
    "source_node_invalid": _("{value} is not the name of a Kubernetes node."),
    "source_node_unknown": _("Cluster {cluster} has no node {node}."),
    "source_node_ambiguous": _("{node} fits several nodes of cluster {cluster}: {nodes}. Send their names."),
    "source_address_earlier": _(
        "Another machine may have had {host} then: node {node} of cluster {cluster} joined later, at {since}. Send the "
        "name of the node."
    ),
    "source_code_missing": _("Is missing. It becomes the code of the fault."),
    "source_code_invalid": _(
        "{value} cannot be a code. Use 1 to 128 letters, digits, spaces and the characters _ . = / -"
    ),
    "source_time_invalid": _("{value} is not a time. Write 2026-11-21T08:00:00Z for example."),
    "source_clock_ahead": _("{at} is {ahead} in the future. Set the clock of the source."),
    "alertmanager_version": _('Must be "4", the version of Alertmanager\'s webhook, not {value}.'),
    "alert_status": _('Must be "firing" or "resolved", not {value}.'),
    "alert_node_missing": _("Has none of the labels that name a node: {labels}. Set node_label of the source."),
    "source_encoding": _("{encoding} is not supported. Send the body as it is, without Content-Encoding."),
    "cloudevent_version": _('Must be "1.0", not {value}.'),
    "cloudevent_attribute": _("{name} must have 1 to {most} characters."),
    "source_line_long": _("Has {characters} characters. A line may have {most}."),
    "loki_result": _("Must be streams, the result of a query for logs, not {value}."),
    "loki_value": _('Must be ["nanoseconds", "line"], not {value}.'),
    "loki_lines_too_large": _("The lines from {start} to {end} are too large to read. They were left out."),
    "loki_page_full": _("More than {most} lines have the time {at}. Some were left out."),
    "pod_log_left_out": _("{container} writes too much to its log. Its lines from {start} to {end} were left out."),
    "gpud_health_missing": _("Must be the health of a component; healthy is {value}."),
    "prometheus_result": _("Must be a vector, the result of an instant query, not {value}."),
    "prometheus_partial": _("The answer may lack series: {why}. What it lacks has not ended."),
    "prometheus_value": _('Must be [seconds, "number"], not {value}.'),
    "performance_partial": _("The answer may lack series: {why}. No job is judged by it."),
    "performance_labels": _("Names no pod and no job: it has none of the labels {labels}, or no namespace."),
    "prometheus_xid": _("{value} is not the number of an Xid."),
    "prometheus_job": _(
        "Series of the job {job} do not count, those of {known} do: any user can export this metric. If the job is "
        "your exporter, write {query} into the setting {setting}."
    ),
    "source_selects_all": _(
        "The query has no label selector. Anyone whose pod Prometheus scrapes can report a fault of any node. Add a "
        "label of the exporter to the setting {setting}."
    ),
    "loki_namespace": _(
        "The line is from namespace {namespace}, and lines count from {known} only: any user can give a workload this "
        "name. Write a selector with the namespace into the setting {setting}."
    ),
    "event_namespace": _(
        "Events about nodes in namespace {namespace} are not trusted. Change {setting} of the source."
    ),
    "event_xid": _("Must name the address of a device and an Xid, as in {example}, not {value}."),
    "event_preflight": _("Must be a preflight report in JSON: {problem}"),
    "event_preflight_node": _("Must be {node}, the node that the Event is about."),
    "event_preflight_workload": _("Must name the workload of a preflight report in 1 to 253 characters."),
    "event_orders_many": _("More than {most} restarts wait for the API server. This one was left out."),
    "event_reports_many": _("More than {most} preflight reports wait for the API server. This one was left out."),
    # What ends an incident.
    "source_reports_healthy": _("Source {source} reports that {check} has passed."),
    "ended_flapping": _("{why} The fault flaps, so it is closed when it has stayed away for {after}."),
    # A source and its settings.
    "source_exists": _("A source named {source} exists already."),
    "source_name_invalid": _(
        "A source's name has 1 to 63 lower-case letters, digits and '-', and begins and ends with a letter or digit."
    ),
    "source_url_missing": _("A source of kind {kind} needs the address that it reads."),
    "source_url_unused": _("A source of kind {kind} has no address. Leave it out."),
    "source_token_unused": _("A source of kind {kind} sends no token. Leave it out."),
    "source_setting_unknown": _("Sources of kind {kind} have no setting {name}. They have: {known}."),
    "source_setting_number": _("Must be a whole number from {least} to {most}."),
    "source_setting_measure": _("Must be one of: {known}."),
    "source_setting_missing": _("A source of kind {kind} needs the setting {name}."),
    "source_setting_boolean": _("Must be true or false."),
    "source_setting_list": _("Must be 1 to {most} names, separated by commas."),
    "source_setting_text": _("Must have 1 to {most} characters."),
    "source_setting_table": _("Invalid JSON: {problem}. Write a list of objects with type, status, reason and for."),
    "condition_preset_unknown": _("Unknown preset {preset}. Use one of {known}."),
    "condition_table": _("Must be a list of at most {most} conditions."),
    "condition_row": _("Must be an object with type, status, reason and for."),
    "condition_key_unknown": _("Unknown key {key}. Use {known}."),
    "condition_type": _(
        "Must be the type of a node condition, such as KernelDeadlock, but not Ready or a condition of the portal."
    ),
    "condition_status": _('Must be "True" or "False". "Unknown" proves nothing.'),
    "condition_reason": _("Must be the reason of a condition, such as DockerHung, or empty for any."),
    "condition_severity": _("Must be info, warning, degraded or fatal."),
    "source_in_use": _("Source {source} is used by rule {rules}. Change the rule first."),
    "source_builtin": _("Source {source} is built in. To switch it off, set enabled to false."),
    "source_builtin_kind": _("Sources of kind {kind} are built in. Change the existing one."),
    "source_off": _("Source {source} is switched off."),
    "source_not_pushed": _("Sources of kind {kind} do not accept events. The portal reads them."),
    "source_token": _("Tokens of kind source can only send events to their own source."),
    "source_token_other": _("This token is for source {source}."),
    "source_token_required": _("Requires a token of kind source for this source. Create one with manage.py token."),
    "source_token_without_source": _("A token of kind source needs the name of its source."),
    "token_source_unused": _("Tokens of kind {kind} have no source."),
    "source_of_other_cluster": _("The source belongs to cluster {cluster}. Leave cluster out."),
    "unknown_source": _("Unknown source {source}."),
    # A cluster on which another system acts.
    "acted_on_by": _("{system} acts on its nodes."),
    "lease_elsewhere": _("{holder} holds the Lease of the cluster, so this portal runs in shadow there."),
    "lease_missing": _("This portal does not hold the Lease of the cluster yet, so it runs in shadow there."),
    # The result of a test.
    "source_cluster_silent": _("The API server of cluster {cluster} does not answer: {problem}"),
    "source_rate": _(
        "Source {source} sends too many requests; the limit is {rate} per second, {burst} at once. Retry later."
    ),
    "source_events_many": _(
        "Source {source} has sent too many new events; the limit is {hourly} an hour, {most} at once. Retry later."
    ),
    "source_busy": _(
        "A request of source {source} is being stored, or requests of too many others are. Send this one again."
    ),
    "source_broken": _("The data of the source could not be processed: {problem}"),
    "source_answer_large": _("The answer of {host} has more than {bytes} bytes."),
    "source_answer_not_json": _("The answer of {host} is not JSON: {problem}"),
    "source_gpud_node": _("The address names no node. Write {places} in it, or the name of its node in {setting}."),
    "source_nodes_silent": _("{count} of {total} nodes gave no usable answer. {node}: {why}"),
    "source_logs_unread": _("{count} logs or namespaces could not be read. {first}: {why}"),
    # Problems of a source.
    "source_failing": _("Source {source} cannot be read."),
    "source_late": _("Source {source} is {behind} behind."),
    "source_silent": _("Nothing has come from source {source} for {span}."),
    "source_test_unanswered": _("No worker tested the source within {wait}. See whether workers run."),
    "source_nothing_seen": _("Nothing arrived in the last hour."),
}
