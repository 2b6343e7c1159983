"""Results of health checks that the portal writes itself. Shown beside the result, so without a full stop."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # A node that an automatic run leaves out.
    "node_cordoned": _("it is cordoned"),
    "node_not_ready": _("it is not Ready"),
    "node_excluded_by_label": _("it carries {label}=true"),
    "node_in_rescue": _("the node has an open rescue"),
    "node_in_maintenance": _("maintenance until {until}: {why}"),
    # GPUs that are not idle.
    "gpu_users_unknown": _("the portal could not list the pods that hold GPUs: {error}"),
    "pod_holds_gpus": _("the pod {pod} holds GPUs"),
    "check_run_uses_gpus": _("check run {run} is using its GPUs"),
    # A job that ended, and whose owner asked for checks.
    "check_after_without_nodes": _("none of the job's nodes is a GPU node of the cluster any more"),
    "check_after_too_many": _("jobs of namespace {namespace} began {count} check runs within an hour"),
    # iperf's ring.
    "ring_without_partner": _("no other node of its batch can take part in the ring"),
    "node_without_address": _("the cluster shows no address (InternalIP) of this node"),
    "ring_without_interface": _("the nodes of its batch have no data interface in common"),
    "partner_left_ring": _("{node} has left the ring: {why}"),
    # An agent's answer.
    "result_missing": _("the agent returned no result for this check"),
    "check_not_run": _("the agent did not run the check ({state}): {message}"),
    # The volume claim of the check pvc.
    "claim_not_written": _("the cluster is in mode {mode}: nothing is written to it"),
    "claim_unreadable": _("the claim could not be read: {error}"),
    "claim_bound": _("bound after {seconds} s"),
    "claim_bound_by_class": _("bound after {seconds} s by class {storage_class}"),
    "claim_not_bound": _(
        "not bound within {seconds} s (phase {phase}); use a storage class that supports ReadWriteMany and"
        " binds immediately"
    ),
    "claim_not_bound_by_class": _(
        "not bound within {seconds} s (phase {phase}); storage class {storage_class} must support ReadWriteMany and"
        " bind immediately"
    ),
    "claim_gone": _("the claim no longer exists"),
}
