"""Refused requests of agents. They are answered in English, because they end up in the log of an agent.

A sentence about the body, a header or a parameter follows its name.
"""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Address, method and parameters.
    "agent_endpoint_unknown": _("no endpoint {path}; supported: {known} under {prefix}"),
    "method_not_allowed": _("{endpoint} requires {method}, not {used}"),
    "out_of_range": _("must be a number from {least} to {most}, not {value}"),
    # The body.
    "body_timeout": _("not received within {seconds} s"),
    "body_incomplete": _("the connection was closed before the body was complete"),
    "body_too_large": _("has {bytes} bytes; the limit is {limit} (unpacked). Send fewer items at once"),
    "unpacked_too_large": _("has more than {limit} bytes once unpacked; send fewer items at once"),
    "body_missing": _("is empty; send {wanted}"),
    "report_wanted": _("a report as JSON, at least a heartbeat ({keys})"),
    "enrolment_wanted": _("{example}, the node's name as the cluster knows it"),
    "unsupported_encoding": _("{encoding} is not supported; send gzip or omit the header"),
    "not_gzip": _("is not gzip although Content-Encoding is gzip: {error}"),
    "gzip_truncated": _("the gzip data is truncated"),
    "gzip_with_tail": _("{bytes} bytes follow the gzip data; send one gzip member"),
    "value_not_storable": _("contains a value that cannot be stored: {error}"),
    "enrolment_too_deep": _("is nested too deeply; send {wanted}"),
    "enrolment_not_json": _("is not JSON in UTF-8: {error}; send {wanted}"),
    "enrolment_duplicate_key": _("has a key twice in one object; send {wanted}"),
    "enrolment_not_object": _("must be an object, not {value}; send {wanted}"),
    "enrolment_node_missing": _("is missing; send {wanted}"),
    "enrolment_node_invalid": _("{value} is not a node name; send {wanted} (lower-case letters, digits, '-' and '.')"),
    # Tokens of the portal.
    "not_authenticated": _("send the header Authorization: Bearer TOKEN"),
    "token_kind": _("this token is of kind {kind}; agents need kind agent"),
    "token_cluster": _("this agent token has no cluster; create one with token create --cluster NAME"),
    "other_cluster": _("this token belongs to cluster {cluster}, not {other}; leave the cluster out"),
    "enrolment_token": _("this token can only enrol; POST /api/v1/agent/enrol returns one for the node"),
    "other_node": _("this token belongs to node {node}, not {other}"),
    # Tokens of service accounts.
    "cluster_header_missing": _("a service account token does not name its cluster; send the cluster's name"),
    "jwt_invalid": _("neither a portal token nor a service account token"),
    "token_audience": _("the token is not for audience {audience}; set it in the projected volume"),
    "token_subject": _("not a service account token; use the one projected into the agent's pod"),
    "token_expiry": _("the token does not expire; use a projected token"),
    "token_expired": _("the token expired at {at}; read its file again"),
    "token_rejected": _("cluster {cluster} rejected this token, or its pod is gone"),
    "token_unbound": _("the token is not bound to a pod; use one projected into the agent's pod"),
    "account_not_allowed": _("{account} may not report for nodes; KCOVER_SERVICE_ACCOUNTS allows {allowed}"),
    "nobody": _("nobody"),
    "token_not_reviewed": _(
        "the API server of cluster {cluster} cannot review the token: {why}. Keep the report and retry."
    ),
    "api_server_down": _("it did not answer recently"),
    "pod_unknown": _("pod {pod} of cluster {cluster} is not known yet. Keep the report and retry."),
    # The portal itself.
    "report_rate": _(
        "Node {node} sends too many reports; the limit is {rate} per second, {burst} at once. Keep the report and"
        " retry."
    ),
    "queue_full": _("Too many reports are queued. Retry later."),
    "database_unavailable": _("The portal's database does not answer. Keep the report and retry."),
    "internal_error": _("Internal error; see the portal's log. Keep the report and retry."),
}
