"""Kubeconfigs, and the test of what a cluster allows the portal to do.

Errors of a kubeconfig stand alone or after the name of its file, so they have no full stop.
"""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Errors of a kubeconfig.
    "file_unreadable": _("cannot read {file}: {error}"),
    "kubeconfig_too_large": _("the kubeconfig has {bytes} bytes; the limit is {most}"),
    "kubeconfig_other_document": _("the text is not a kubeconfig; clusters, contexts and users are required"),
    "kubeconfig_section_missing": _("not a kubeconfig: {section} is missing or empty"),
    "kubeconfig_no_context": _("no current context; choose one of {names}"),
    "kubeconfig_context_unknown": _("unknown context {context}; choose one of {names}"),
    "kubeconfig_reference_missing": _("context {context} refers to {kind} {name}, which is not in the file"),
    "kubeconfig_no_server": _("the cluster of context {context} has no server (https://...)"),
    "kubeconfig_key_refused": _(
        "{key} of the {section} is not accepted here; paste the output of kubectl config view --minify --flatten for an"
        " account with a token or a client certificate"
    ),
    "kubeconfig_value_not_text": _("{key} is not text"),
    "kubeconfig_switch_not_bool": _("{key} is neither true nor false; write it without quotes"),
    "kubeconfig_value_not_visible": _(
        "{key} of the {section} has a line break, a space or a character outside ASCII; paste it as one line"
    ),
    "kubeconfig_server_refused": _(
        "the server's address is not accepted here; write https://HOST:PORT, without credentials, query or fragment"
    ),
    "kubeconfig_yaml_refused": _(
        "line {line}: a kubeconfig may have no anchors, aliases or tags, and not too many values; paste the output of"
        " kubectl config view --minify --flatten"
    ),
    "kubeconfig_without_credentials": _("the user has neither a token nor an embedded client certificate with its key"),
    # Warnings about a kubeconfig.
    "kubeconfig_file_relative": _("{field} {file} is relative; it was read from the kubeconfig's folder"),
    "kubeconfig_warns_program": _(
        "the user's credentials come from the program {program}; install it wherever the portal runs"
    ),
    "kubeconfig_warns_file": _("the token is read from {file}; the file must exist wherever the portal runs"),
    "kubeconfig_warns_http": _(
        "the server uses plain HTTP: anyone on the network path can read and change the requests"
    ),
    "kubeconfig_warns_unverified": _("the API server's certificate is not verified (insecure-skip-tls-verify)"),
    # A cluster cannot be registered.
    "cluster_exists": _("cluster {cluster} already exists; choose another name"),
    "cluster_added_meanwhile": _("another cluster with this name was added at the same time; choose another name"),
    "cluster_in_cluster_taken": _("cluster {cluster} is the one that the portal runs in"),
    "cluster_runs_outside": _("the portal does not run in a Kubernetes cluster; give a kubeconfig"),
    "cluster_added_paused": _("a new cluster cannot be paused; add it in shadow mode"),
    "cluster_access_twice": _("give a kubeconfig or in_cluster, not both"),
    "cluster_not_added": _("the cluster was not added: {why}"),
    # Why the test of a cluster found no API server.
    "cluster_credentials_refused": _("The API server rejects the credentials (401). Create a new token."),
    "cluster_call_forbidden": _("The API server forbids the request (403). The account has no rights."),
    "cluster_status": _("The server answered with status {status}. Check the address."),
    "cluster_not_kubernetes": _("The server's response is not that of a Kubernetes API server. Check the address."),
    "cluster_timeout": _(
        "The server did not answer in time. Check the address and the network between the portal and the server."
    ),
    "cluster_tls_failed": _("TLS failed. Check the certificate authority in the kubeconfig. Error: {error}"),
    "cluster_not_connected": _("No connection to the server: {error}"),
    "cluster_connection_closed": _("The connection ended before a valid response. Check the address and the port."),
    # Features of the portal in a cluster, and their rights.
    "feature_watch": _("Watch nodes and pods"),
    "feature_mark": _("Cordon, taint and label nodes"),
    "feature_evict": _("Drain nodes: evict pods"),
    "feature_delete": _("Forced drains and restarts: delete pods"),
    "feature_rebootJob": _("Reboot by a Job"),
    "feature_pairTests": _("Pair tests by Jobs"),
    "feature_readEvents": _("Read Events as a source of faults"),
    "feature_writeEvents": _("Write an Event for each step"),
    "feature_podLogs": _("Read the logs of pods"),
    "feature_agentTokens": _("Agents that authenticate with the token of their pod"),
    "feature_preflightReports": _("Preflight reports as objects"),
    "feature_policyObjects": _("Policies as objects"),
    "feature_claimCheck": _("The check pvc"),
    "feature_ledgerLease": _("Signed heads of the audit log in a Lease"),
    "feature_kubeflow": _("Jobs of Kubeflow"),
    "feature_batch": _("Jobs of Kubernetes"),
    "feature_leaderWorkerSet": _("Jobs of LeaderWorkerSet"),
    "feature_jobSet": _("Jobs of JobSet"),
    "feature_trainer": _("Jobs of Kubeflow Trainer"),
    "feature_ray": _("Jobs of Ray"),
    "feature_volcano": _("Jobs of Volcano"),
    "feature_statefulSet": _("StatefulSets as jobs"),
    "feature_nvsentinel": _("Reboots and GPU resets by NVSentinel"),
    "feature_clusterApi": _("Machines replaced by Cluster API"),
    "feature_karpenter": _("Machines replaced by Karpenter"),
    "feature_deviceTaints": _("Isolate single devices by DeviceTaintRules"),
    "feature_actionLease": _("Election between portals by a Lease"),
}
