"""The audit stream: invalid sinks, and failed deliveries."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "sink_name_invalid": _("A sink's name has 1 to 63 lower-case letters, digits and hyphens, such as siem."),
    "sink_exists": _("There is already a sink {sink}."),
    "sink_unknown": _("There is no sink {sink}."),
    "topic_unknown": _("{topic} is not a topic. Topics are: {known}."),
    "topics_missing": _("Name at least one topic."),
    "sink_file_invalid": _(
        "Write the name of a file in KCOVER_AUDIT_FOLDER, without folders: letters, digits, dots, hyphens and"
        " underscores, such as audit.jsonl."
    ),
    "sink_folder_unset": _("File sinks need a folder: set KCOVER_AUDIT_FOLDER."),
    "sink_syslog_invalid": _("Write udp://HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT."),
    "sink_bucket_invalid": _("Must have the name of the bucket as its path, such as {example}."),
    "sink_bucket_key_invalid": _("Must be the access key and the secret key with a colon between them."),
    "secret_missing_for_user": _("A user needs a secret: the password or token of the user."),
    "option_unknown": _("{name} is not an option of this kind. Options are: {known}."),
    "option_invalid": _("{name} must be printable ASCII without spaces, at most {most} characters."),
    "secret_for_vendor": _("Enter the secret again: the portal derives the key for the vendor's events from it."),
    "sink_not_written": _("{path} cannot be written: {error}."),
    "sink_refused": _("{host} answered with status {status}."),
    "syslog_connection_reset": _("{host} broke the connection before it had read everything: {error}."),
    "syslog_not_closed": _(
        "{host} did not close the connection within {seconds} s, so it may not have read everything."
    ),
    "sink_tickets_only": _("A sink of kind {kind} receives the topic {topic} and no other."),
    "sink_vendors_topics": _("The option {name} limits the topic {topic} only. Choose this topic and no other."),
    "option_missing": _("This kind of sink needs the option {name}, such as {example}."),
    "option_text_invalid": _("{name} must be printable text without spaces around it, at most {most} characters."),
    "jira_project_invalid": _("Must be the key of a Jira project, such as OPS."),
    "jira_labels_invalid": _("Labels have no quotation marks and are separated by spaces, at most {most} characters."),
    "jira_states_invalid": _("{piece} is invalid. Write pairs such as {example}. States of repairs: {known}."),
    "jira_token_invalid": _("Must be an API token: printable ASCII without spaces, at most {most} characters."),
    "incoming_secret_unused": _("A sink of kind {kind} has no secret for incoming messages."),
    # Answers of Jira.
    "jira_refused": _("Jira at {host} answered with status {status} to {call}: {text}"),
    "jira_answer_invalid": _("The answer of Jira at {host} to {call} is not what its documentation says."),
    "jira_too_slow": _("Jira at {host} has not answered all calls about a repair within {seconds} s."),
    "jira_issue_unsure": _(
        "Jira may have created an issue for repair {repair} although its answer was lost. "
        "The portal searches for it for {span} before it creates one."
    ),
    "jira_transition_missing": _(
        "Issue {issue} is in state {state}, from which Jira offers no transition {name}. It offers: {known}. "
        "Move the issue by hand, or correct the option close_transition."
    ),
    "jira_issue_open": _("The repair of issue {issue} has ended, but the issue is still open."),
    "sink_set_aside": _(
        "The receiver of {sink} refused {count} records for good, the first about repair {repair}. They are set aside. "
        "Send them again with manage.py audit_stream resend {sink}, or drop them."
    ),
    "sink_behind": _("{sink} has not received {count} records; the oldest is {span} old."),
}
