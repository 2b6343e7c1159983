"""Failed calls to a cluster's API server, in the portal's own words.

They stand inside a sentence such as ``cluster_unavailable`` and have no full stop.
"""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "api_server_silent": _("{call} was not sent, because the API server did not answer recently"),
    "api_server_unconnected": _("{call}: no connection: {error}"),
    "api_response_unexpected": _("{call}: unexpected response: {error}"),
    "api_request_unsendable": _("{call} was not sent, because a header or the server's name cannot be sent"),
    "page_repeated": _("{path}: the server sent the same page again"),
    "object_name_invalid": _("{path}: {name} is not the name of an object; nothing was sent"),
    # The kubeconfig of a cluster.
    "kubeconfig_invalid": _("the kubeconfig cannot be used: {error}"),
    "kubeconfig_too_deep": _("the kubeconfig has more than {most} lists and mappings in each other"),
    "kubeconfig_yaml_invalid": _("the kubeconfig is not valid YAML: {error}"),
    "kubeconfig_credentials": _("the credentials of the kubeconfig cannot be read: {error}"),
    "kubeconfig_auth_provider": _(
        "the kubeconfig uses auth-provider, which is not supported; use a service account's token"
    ),
    "kubeconfig_field_unsupported": _(
        "the portal does not support {field} in {section} of the kubeconfig; remove it, or use another account"
    ),
    "kubeconfig_proxy": _("proxy-url of the kubeconfig must be http://HOST:PORT or https://HOST:PORT"),
    "kubeconfig_program": _(
        "the kubeconfig takes its credentials from the program {program}; use a service account's token, or allow the"
        " program with KCOVER_KUBECONFIG_COMMANDS={program}"
    ),
    "kubeconfig_program_not_text": _(
        "the kubeconfig takes its credentials from a program whose name is not text; use a service account's token"
    ),
    "kubeconfig_file": _(
        "{field} of the kubeconfig names the file {file}; embed its content, or allow the file with"
        " KCOVER_KUBECONFIG_COMMANDS={file}"
    ),
    "kubeconfig_file_not_text": _("{field} of the kubeconfig is not text; embed the content of the file"),
    # Nodes and pods.
    "node_changed_often": _("node {node} was changed by others {count} times in a row"),
    "node_write_late": _("node {node} was not changed: it took more than {seconds} s to read it"),
    "pod_call_rejected": _("pod {pod}: the server rejected the request, although the UID matches"),
    # Training jobs.
    "job_changed_often": _("{job} is another job now, or was changed during each try"),
    "job_kind_unsupported": _("{kind} is not a kind of training job; kinds are: {known}"),
    "job_kind_not_changed": _("The portal changes no {kind}. Change it with kubectl."),
    "job_kind_not_suspended": _("{kind} has no field that suspends it"),
    "job_template_fixed": _("{kind} has no pod template that may be changed"),
    "job_field_missing": _("{kind} has no {field}"),
    "job_field_unreadable": _("{field} of {kind} cannot be read"),
    "selector_term_unreadable": _("{field} of a node selector term cannot be read"),
    # The watch; stands alone and ends with free text.
    "watch_failed": _("The watch failed: {error}"),
}
