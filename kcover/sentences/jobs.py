"""Orders to restart or stop a training job."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Why a job was restarted.
    "job_on_faulty_node": _("It ran on node {node}, which rescue {rescue} took out of service."),
    "job_ordered_by": _("Ordered by {by}."),
    "job_ordered_by_because": _("Ordered by {by}: {why}"),
    "job_container_failed": _("Container {container} of pod {pod} ended with an error (exit code {exit_code})."),
    "job_event_asks": _("An Event about pod {pod} asks for it: {message}"),
    "job_label_set": _("Somebody set the label {label}=true on the job."),
    # Why an order is refused.
    "job_kind_unknown": _("{kind} is not a kind of training job. Kinds are: {known}."),
    "job_unknown": _("There is no {kind} {job} in cluster {cluster}."),
    "job_action_unknown": _("{action} is not an action. Use one of: {known}."),
    "job_cluster_silent": _("Cluster {cluster} did not answer. {why}"),
    "job_part_of": _(
        "{job} belongs to {kind} {owner}. Give the order for {owner}: the portal never acts on a part alone."
    ),
    "job_not_protected": _("The job is not protected. Its owner consents with the label {label}=true."),
    "job_never_restarted": _("Its pods have restartPolicy Never, so its controller would not create them again."),
    "job_has_no_pods": _("The job has no pods."),
    "job_ended": _("The job has ended."),
    "job_suspended": _("The job is suspended. Resume it instead."),
    "job_cannot_stop": _("A {kind} cannot be suspended. Stop it with kubectl."),
    "job_in_queue": _("Kueue decides when the job runs (queue {queue}). Deactivate its Workload instead."),
    "job_order_running": _("Order {order} about this job is running."),
    "job_needs_approver": _("The cluster is in mode approve. An approver must give this order."),
    "job_order_waits": _("Order {order} by {by} waits for approval by another approver."),
    "job_no_order_waits": _("No order about this job waits for approval."),
    "job_order_of_another": _("Order {order} was given by {by}. Only its requester or an approver can end it."),
    # What an order waits for, and how it ends.
    "job_awaits_approval": _("Waiting for another approver to approve the order of {by}."),
    "job_order_declined": _("Declined by {by}."),
    "job_order_declined_because": _("Declined by {by}: {why}"),
    "job_order_expired": _("Nobody approved it within {span}."),
    "job_backs_off": _("Restarts in the last hour: {count}. The next one is at {until}."),
    "job_crash_loop": _("Crash loop: {count} restarts in the last hour. Automatic restarts have stopped."),
    "job_stops": _("Stopping. Pods that have not ended: {pods}."),
    "job_stopped": _("Stopped: {job}."),
    "job_not_stopped": _("Pods have not ended {minutes} min after the job was suspended: {pods}."),
    "job_runs_again": _("All pods of {job} run again."),
    "job_gone": _("The job was deleted."),
    "job_shadow": _("The portal would have restarted the job. It writes nothing in this mode."),
    "job_order_replaced": _("Replaced by order {order}."),
    "job_order_given_up": _("Given up after {count} failed attempts. {why}"),
}
