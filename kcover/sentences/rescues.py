"""Rescues as a whole: how they stop, wait, start over and end, and why a request is refused."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "requested_by_system": _("Requested by a decision system."),
    # The cluster and the node, seen by a worker.
    "cluster_unavailable": _("API server unavailable: {error}"),
    "cluster_rejected": _("The cluster rejected the request, and a retry will not help: {error}"),
    "cluster_not_found": _("The object no longer exists in the cluster: {error}"),
    "another_machine": _("The cluster has another machine named {node} now (UID {uid}, not {expected})."),
    "uncordoned_by_hand": _("Someone uncordoned {node} by hand."),
    "uncordoned_outside": _(
        "An uncordon outside of the portal ends the cordon only. What else the portal changed stays until a person "
        "releases {node} here."
    ),
    "mark_removed_by_hand": _("Someone removed the portal's mark from {node}."),
    "node_call_in_flight": _("Another call about {node} is under way."),
    "node_lock_expired": _("The lock on {node} has expired."),
    "lease_lost": _("The worker lost its lease on rescue {rescue} (fencing token {token})."),
    "ended_before_call": _("Rescue {rescue} ended before the call was made."),
    "approve_step": _("Approve mode: the step {step} needs approval."),
    # Ends.
    "step_ended": _("{step}: {why}"),
    "starting_over": _("Trying the repair again. {why}"),
    "tried_often": _("Tried {count} times. {why}"),
    "no_outcome": _("{count} attempts in a row ended without an outcome. See the workers' log."),
    "call_not_in_time": _("The call was not made in time. It is retried with all its checks."),
    "call_not_tried": _("The attempt ended before it came to this call. It is retried with all its checks."),
    "in_service_again": _("Back in service."),
    "healed_but_cordoned": _("The node is healthy. It takes no work while the cordon of someone else stays."),
    "done_in_service": _("The plan is complete. The node takes work as before."),
    "done_isolated": _("The plan is complete. The node stays unschedulable."),
    "fault_cleared": _("Stopped: the fault has cleared."),
    "fault_cleared_before": _("The fault has cleared, so the node is not isolated."),
    "stays_isolated": _("The node stays isolated and takes no new work. To return it to service, release it."),
    "nothing_done": _("Nothing was done."),
    "start_by_passed": _("Not started by {start_by}, the latest time the decision system allowed."),
    "call_may_have_run": _("An earlier call may have changed the node. Check it."),
    "cancelled_by": _("Cancelled by {by}."),
    "cancelled_by_because": _("Cancelled by {by}: {why}"),
    "replaced_by_request": _("{by} requested another action for the node: {act}."),
    "skipped_by": _("Skipped by {by}."),
    "skipped_by_because": _("Skipped by {by}: {why}"),
    "taken_over_by": _("Taken over by {by}."),
    "taken_over_by_because": _("Taken over by {by}: {why}"),
    # Requests that are revoked.
    "requests_withdrawn": _("Revoked: {requests}. An action that the node has already started cannot be stopped."),
    "withdraw_pending": _("Request not revoked yet. {why}"),
    "withdraw_gave_up": _("The request could not be revoked and has ended by its own deadline: {error}"),
    "request_withdrawn": _("Request revoked: {jobs}."),
    "job_deleted": _("job {job} was deleted"),
    "job_had_run": _("job {job} had already run"),
    "no_job_found": _("no job was found"),
    # Refusals.
    "rescue_has_ended": _("Rescue {rescue} has already ended."),
    "rescue_not_held": _("Rescue {rescue} is not held (any more)."),
    "nothing_to_retry": _("Rescue {rescue} is not held at a step: there is nothing to retry."),
    "nothing_to_skip": _("Rescue {rescue} is not held at a step: there is nothing to skip."),
    "other_step": _("Rescue {rescue} is at step {number} ({step}) now. Review it again."),
    "called_back_already": _("Rescue {rescue} was already called back as {outcome}."),
    "other_delivery": _("Rescue {rescue}: the current delivery is {delivery}, not {named}."),
    "delivery_needed": _("Rescue {rescue}: the node was handed over more than once. Name the delivery."),
    "not_handed_over": _("The node of rescue {rescue} is not handed over to another system."),
    "rescue_in_the_way": _("Rescue {rescue} is open on this node. Cancel it, or release the node."),
    "no_such_node": _("Cluster {cluster} has no node {node}."),
    "left_to_policies": _("Cluster {cluster} leaves decisions to policies (decision_mode policies)."),
    "requested_by_person": _("Rescue {rescue} was requested by {by}. Only a person may revoke it."),
    "waits_for_person": _("Rescue {rescue} is waiting for an operator."),
    # Incidents: why they were closed.
    "incident_verified": _("Verified by rescue {rescue}."),
    "told_late": _("{source} reported it {late} late, from before the reboot or repair, or maybe so: not counted."),
    "node_taken_back": _("{by} took the node back."),
    "node_taken_back_because": _("{by} took the node back: {why}"),
    "verification_skipped": _("{by} skipped the verification."),
    "verification_skipped_because": _("{by} skipped the verification: {why}"),
    "closed_by": _("Closed by {by}."),
    "closed_by_because": _("Closed by {by}: {why}"),
    "incident_closed_already": _("Incident {incident} is already closed."),
    "node_gone": _("The cluster no longer has the node."),
    "agent_reports_again": _("The agent reports again."),
}
