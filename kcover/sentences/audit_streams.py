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
    "sink_not_written": _("{path} cannot be written: {error}."),
    "sink_refused": _("{host} answered with status {status}."),
    "syslog_connection_reset": _("{host} broke the connection before it had read everything: {error}."),
    "syslog_not_closed": _(
        "{host} did not close the connection within {seconds} s, so it may not have read everything."
    ),
    "sink_behind": _("{sink} has not received {count} records; the oldest is {span} old."),
}
