"""Preflight runs, and reports that are not counted. A sentence about a field of a report follows its name."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "preflight_waiting": _("{received} of {expected} reports have arrived."),
    "preflight_expired": _(
        "Only {received} of {expected} reports arrived within {within}, from {nodes}. They get no verdict."
    ),
    "preflight_incomplete": _("{received} of {expected} reports arrived. There is no verdict about slow nodes."),
    "preflight_abnormal": _("{node} failed {checks}."),
    "preflight_slow": _("{node} failed all {slots} rounds that count."),
    "preflight_suspects": _("One of {nodes} is slow. A run of two nodes cannot show which node is slow."),
    "preflight_slots": _("{node} ran {slots} of {expected} rounds, too few to call it slow."),
    "preflight_size": _(
        "{node} reports a run of {size} nodes, not {before}. The {received} earlier reports are dropped."
    ),
    "preflight_size_beside": _(
        "{node} reports a run of {size} nodes. {received} other nodes report {before}, and their run continues."
    ),
    "preflight_flagged": _("Preflight run {run} of {workload}: {why}"),
    "preflight_again": _("{node} reported again after the verdict. A new run begins."),
    "preflight_cleared": _("Preflight run {run} of {workload} was clean on this node."),
    # Pair tests that the portal runs.
    "pair_slow": _("Preflight plan {plan}: {failed} of {ran} pairs of {node} stayed below {threshold} GB/s."),
    "pair_cleared": _("Preflight plan {plan} found this node clean: {ran} pairs reached {threshold} GB/s."),
    "pair_no_image": _("Cluster {cluster} has no image for pair tests: set nccl_image to an image with PyTorch."),
    "pair_nodes": _("Must select 2 to {most} nodes with GPUs, not {count}."),
    "pair_nodes_excluded": _("These nodes are excluded or in maintenance: {nodes}. Leave them out."),
    "pair_selection": _("Name nodes or a selector, not both."),
    "pair_rounds": _("Must be a whole number from 1 to {most}, not {value}."),
    "pair_threshold": _("Must be a bus bandwidth in GB/s above 0, not {value}."),
    "pair_rule": _("Must be {known}, not {value}."),
    "pair_resources": _("Must be names of resources with numbers, such as rdma/hca=1, not {value}."),
    "pair_plans_full": _("{count} preflight plans are running in cluster {cluster}: wait for one, or cancel one."),
    "pair_plan_ended": _("Preflight plan {plan} has ended."),
    "pair_mode": _("Cluster {cluster} is in mode {mode}, in which the portal creates no Jobs."),
    "pair_job_failed": _("The Job on {node} failed: {why}"),
    "pair_job_late": _("The Jobs did not end within {seconds} s."),
    "pair_job_foreign": _("A Job of the test's name on {node} was not created by this plan."),
    "pair_nodes_in_plan": _("These nodes are in another plan that is running: {nodes}. Wait for it, or cancel it."),
    "pair_node_busy": _("{node} has other work: pod {pod}."),
    "pair_node_not_ready": _("{node} is not Ready."),
    "pair_node_in_rescue": _("{node} has an open rescue."),
    "pair_node_excluded": _("{node} is excluded or in maintenance."),
    "pair_node_gone": _("{node} is no longer in the cluster."),
    "pair_worker_replaced": _("Another worker has preflight plan {plan}, or it was cancelled."),
    "pair_no_gpu": _("No GPU was measured."),
    "pair_call_failed": _("The cluster refused the Jobs: {error}"),
    "bandwidth_not_json": _("The result is not JSON: {text}"),
    "bandwidth_sizes": _("The result must have 1 to {most} message sizes under busbw."),
    "bandwidth_size_invalid": _("A message size must be a number of bytes, not {size}."),
    "bandwidth_figure_invalid": _("The bus bandwidth of size {size} is not a number."),
    "bandwidth_device_invalid": _("The device must be a text."),
    "bandwidth_no_common_size": _("The two nodes measured no common message size."),
    # Reports that are not counted.
    "preflight_deadline_invalid": _(
        "Must be a time from 1 minute to 1 day, such as 30m or 1800 (seconds), not {value}."
    ),
    "preflight_body_wanted": _("Must be a JSON object with {keys}."),
    "preflight_field_invalid": _("{field} is missing or invalid"),
    "preflight_object_invalid": _("Must be a text. This report object has no valid {field}."),
    "preflight_object_node": _("Must be {node}, the node of the report object, not {other}."),
    "preflight_nul": _("Must not contain NUL characters."),
    "preflight_no_pod": _("Cluster {cluster} shows no pod of {workload} on node {node}."),
    "preflight_open_runs": _("This node has {most} open runs. Wait until one has ended."),
    "preflight_node_unknown": _("Cluster {cluster} has no node {node}."),
    "preflight_not_object": _("A report must be a JSON object."),
    "preflight_not_json": _("The report is not valid JSON: {error}"),
    "preflight_node_missing": _("Must be the name of the node that sends the report."),
    "preflight_size_invalid": _("Must be a whole number of nodes from 2 to {most}, not {value}."),
    "preflight_size_odd": _("Must be even, because nodes run in pairs, not {value}."),
    "preflight_not_an_ip": _("{value} is not an IP address"),
    "preflight_threshold_invalid": _("Must be a number of at least 0, not {value}."),
    "preflight_batches_type": _("Must be a list."),
    "preflight_batch_type": _("Must be an object."),
    "preflight_slot_invalid": _("Must be a whole number of at least 0, not {value}."),
    "preflight_slot_twice": _("Slot {slot} appears twice."),
    "preflight_pair_type": _("Must be two addresses."),
    "preflight_pair_same": _("Must be two addresses, not the same one twice."),
    "preflight_not_in_pair": _("{address} is not in the pair"),
}
