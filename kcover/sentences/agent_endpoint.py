"""Refused requests of agents. They are answered in English, because they end up in the log of an agent.

A sentence about the body, a header or a parameter follows its name.
"""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Address, method and parameters.
    "agent_endpoint_unknown": _("No endpoint {path}. Supported: {known} under {prefix}."),
    "method_not_allowed": _("{endpoint} requires {method}, not {used}"),
    "out_of_range": _("Must be a number from {least} to {most}, not {value}."),
    # The body.
    "body_timeout": _("Not received within {seconds} s."),
    "body_incomplete": _("The connection was closed before the body was complete."),
    "body_too_large": _("The body has {bytes} bytes; the limit is {limit} (unpacked). Send fewer items at once."),
    "unpacked_too_large": _("The body has more than {limit} bytes once unpacked. Send fewer items at once."),
    "body_missing": _("The body is empty. Send {wanted}."),
    "report_wanted": _("a report as JSON, at least a heartbeat ({keys})"),
    "enrolment_wanted": _("{example}, the node's name as the cluster knows it"),
    "unsupported_encoding": _("{encoding} is not supported; send gzip or omit the header"),
    "not_gzip": _("The body is not gzip although Content-Encoding is gzip: {error}"),
    "gzip_truncated": _("The gzip data is truncated."),
    "gzip_with_tail": _("{bytes} bytes follow the gzip data; send one gzip member"),
    "value_not_storable": _("The body contains a value that cannot be stored: {error}"),
    "enrolment_too_deep": _("The body is nested too deeply. Send {wanted}."),
    "enrolment_not_json": _("The body is not JSON in UTF-8: {error}. Send {wanted}."),
    "enrolment_duplicate_key": _("The body has a key twice in one object. Send {wanted}."),
    "enrolment_not_object": _("Must be an object, not {value}. Send {wanted}."),
    "enrolment_node_missing": _("Missing. Send {wanted}."),
    "enrolment_key_invalid": _(
        "{value} is not a key of an enrolment; send 16 to 64 letters, digits, '-' and '_', or none"
    ),
    "enrolment_node_invalid": _("{value} is not a node name; send {wanted} (lower-case letters, digits, '-' and '.')"),
    # Tokens of the portal.
    "not_authenticated": _("Send the header Authorization: Bearer TOKEN."),
    "token_kind": _("This token is of kind {kind}. Agents need kind agent."),
    "token_cluster": _("This agent token has no cluster. Create one with token create --cluster NAME."),
    "other_cluster": _("This token belongs to cluster {cluster}, not {other}. Leave the cluster out."),
    "enrolment_token": _("This token can only enrol; POST /api/v1/agent/enrol returns one for the node."),
    "other_node": _("This token belongs to node {node}, not {other}."),
    # Tokens of service accounts.
    "cluster_header_missing": _("A service account token does not name its cluster. Send the cluster's name."),
    "jwt_invalid": _("Neither a portal token nor a service account token."),
    "token_audience": _("The token is not for audience {audience}. Set it in the projected volume."),
    "token_subject": _("Not a service account token. Use the one projected into the agent's pod."),
    "token_expiry": _("The token does not expire. Use a projected token."),
    "token_expired": _("The token expired at {at}. Read its file again."),
    "token_rejected": _("The portal has no cluster {cluster}, the cluster rejected this token, or its pod is gone."),
    "token_unbound": _("The token is not bound to a pod. Use one projected into the agent's pod."),
    "account_not_allowed": _("{account} may not report for nodes; KCOVER_SERVICE_ACCOUNTS allows {allowed}"),
    "nobody": _("nobody"),
    "token_not_reviewed": _(
        "The API server of cluster {cluster} cannot review the token: {why}. Keep the report and retry."
    ),
    "api_server_down": _("it did not answer recently"),
    "pod_unknown": _("Pod {pod} of cluster {cluster} is not known yet. Keep the report and retry."),
    # Evidence.
    "evidence_wanted": _("a chunk of a bundle of evidence"),
    "evidence_parameter": _("Invalid. Send {wanted}."),
    "evidence_not_wanted": _("The portal does not wait for evidence {bundle} from this node. Delete it."),
    "evidence_differs": _("Evidence {bundle} has begun to arrive with another size or SHA-256. Delete this one."),
    "evidence_chunk_too_long": _("The chunk has {bytes} bytes; at most {limit} are missing."),
    "evidence_chunk_too_short": _("The chunk has {bytes} bytes; send at least {least}, except for the last one."),
    "evidence_rate": _("Node {node} uploads too fast; the limit is {rate} chunks per second. Retry later."),
    "evidence_busy": _("Too many uploads at once. Retry later."),
    # The portal itself.
    "report_rate": _(
        "Node {node} sends too many reports; the limit is {rate} per second, {burst} at once. Keep the report and"
        " retry."
    ),
    "poll_rate": _(
        "Node {node} asks for commands too often; the limit is {rate} per second, {burst} at once. Retry later."
    ),
    "portal_stops": _("This process of the portal stops. Keep the report and retry."),
    "queue_full": _("Too many reports are queued. Retry later."),
    "database_unavailable": _("The portal's database does not answer. Keep the report and retry."),
    "internal_error": _("Internal error; see the portal's log. Keep the report and retry."),
}
