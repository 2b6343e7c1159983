"""Rescues as a whole: how they stop, wait, start over and end, and why a request is refused."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "requested_by_system": _("Requested by a decision system."),
    # The cluster and the node, seen by a worker.
    "cluster_unavailable": _("Cluster API unavailable: {error}"),
    "cluster_rejected": _("The cluster rejected the request, and a retry will not help: {error}"),
    "cluster_not_found": _("The cluster no longer has it: {error}"),
    "another_machine": _("The cluster has another machine named {node} now (UID {uid}, not {expected})."),
    "uncordoned_by_hand": _("Someone uncordoned {node} by hand."),
    "mark_removed_by_hand": _("Someone removed the portal's mark from {node}."),
    "node_call_in_flight": _("Another call about {node} is under way."),
    "node_lock_expired": _("The lock on {node} has expired."),
    "lease_lost": _("Rescue {rescue} is no longer held with token {token}."),
    "ended_before_call": _("Rescue {rescue} ended before the call was made."),
    "approve_step": _("Approve mode: a person must approve the step {step} first."),
    # Ends.
    "step_ended": _("{step}: {why}"),
    "starting_over": _("Starting over. {why}"),
    "tried_often": _("Tried {count} times. {why}"),
    "no_outcome": _("{count} attempts in a row ended without an outcome. See the workers' log."),
    "in_service_again": _("The node takes work again."),
    "done_in_service": _("The plan is complete. The node takes work as before."),
    "done_isolated": _("The plan is complete. The node stays unschedulable."),
    "fault_cleared": _("Stopped: the fault has cleared."),
    "fault_cleared_before": _("The fault has cleared, so the node is not isolated."),
    "stays_isolated": _("The node stays isolated."),
    "nothing_done": _("Nothing was done."),
    "start_by_passed": _("Not started by {start_by}, the latest time the decision system allowed."),
    "call_may_have_run": _("An earlier call may have changed the node. Check it."),
    "cancelled_by": _("Cancelled by {by}."),
    "cancelled_by_because": _("Cancelled by {by}: {why}"),
    "replaced_by_request": _("{by} requested {act} for the node."),
    "skipped_by": _("Skipped by {by}."),
    "skipped_by_because": _("Skipped by {by}: {why}"),
    "taken_over_by": _("Taken over by {by}."),
    "taken_over_by_because": _("Taken over by {by}: {why}"),
    # Requests that are called back.
    "requests_withdrawn": _("Withdrawn: {requests}. What the node had already started cannot be recalled."),
    "withdraw_pending": _("Request not withdrawn yet. {why}"),
    "withdraw_gave_up": _("The request could not be withdrawn and has ended by its own deadline: {error}"),
    "request_withdrawn": _("Request withdrawn: {jobs}."),
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
    "other_delivery": _("Rescue {rescue}: the node was handed over as {delivery}, not as {named}."),
    "delivery_needed": _("Rescue {rescue}: the node was handed over more than once. Name the delivery."),
    "not_handed_over": _("Rescue {rescue} is not with another system (any more)."),
    "rescue_in_the_way": _("Rescue {rescue} is open on this node. Cancel it, or release the node."),
    "no_such_node": _("Cluster {cluster} has no node {node}."),
    "left_to_policies": _("Cluster {cluster} leaves decisions to policies (decision_mode policies)."),
    "requested_by_person": _(
        "Rescue {rescue} was requested by {by}. Only a person may take back what a person requested."
    ),
    "waits_for_person": _("Rescue {rescue} is waiting for a person."),
    # Incidents: why they were closed.
    "incident_verified": _("Verified by rescue {rescue}."),
    "node_taken_back": _("{by} took the node back."),
    "node_taken_back_because": _("{by} took the node back: {why}"),
    "verification_skipped": _("{by} skipped the verification."),
    "verification_skipped_because": _("{by} skipped the verification: {why}"),
    "closed_by": _("Closed by {by}."),
    "closed_by_because": _("Closed by {by}: {why}"),
    "incident_closed_already": _("Incident {incident} is closed already."),
    "node_gone": _("The cluster no longer has the node."),
    "agent_reports_again": _("The agent reports again."),
}
