"""Outcomes of the other steps of a rescue: jobs, checks, notifications, webhooks, verification."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # before drain, restart_jobs and stop_jobs
    "checkpoint_waits": _("Waiting until {until} for the next checkpoint of {jobs}."),
    "checkpoint_unknown": _("Waiting until {until}. The last checkpoint of {jobs} is unknown: {why}"),
    "checkpoint_source_missing": _("The cluster has no source of kind prometheus that is switched on."),
    "checkpoint_source_unknown": _("The cluster has no source {source} of kind prometheus that is switched on."),
    "checkpoint_source_many": _("The cluster has several sources of kind prometheus. Name one in {key}."),
    "checkpoint_lost": _("Its query has no result any more."),
    "checkpoint_queries_late": _("Its query was not run, because earlier queries took too long."),
    "owner_checkpoint": _("Write a checkpoint within {minutes} min, or it will not be waited for."),
    "owner_before_drain": _("The node is being repaired. The job's pods are about to be evicted from it."),
    "owner_before_restart_jobs": _("The node is being repaired. The job is about to be restarted on other nodes."),
    "owner_before_stop_jobs": _("The node is being repaired. The job is about to be stopped."),
    "owner_after_drain": _("The job's pods have left the node."),
    "owner_after_restart_jobs": _("The job was restarted on other nodes."),
    "owner_after_stop_jobs": _("The job was stopped. Resume it when you want."),
    # restart_jobs
    "node_schedulable": _("No job was restarted: the node is schedulable, so their pods would come back to it."),
    "restarted_lately": _("Restarted less than {seconds} s ago: {jobs}."),
    "jobs_restarted": _("Restarted: {jobs}."),
    "job_recovery_forbids": _("No job is restarted: job_recovery of cluster {cluster} is {recovery}."),
    "no_protected_job": _("No protected job runs on this node."),
    "jobs_left_alone": _("Not restarted: {jobs}."),
    "jobs_swapped": _("Not restarted, because Kueue replaces the failed node: {jobs}."),
    "job_partly_back": _("{job}: {running} of {wanted} pods run again."),
    "pods_not_ended": _("Not ended yet: {pods}."),
    "pods_starting": _("Not running yet: {pods}."),
    "pods_lack_room": _("Waiting for a free node: {pods}."),
    "pods_not_created": _("Not created yet: {count}."),
    "jobs_lack_room": _("The plan continues, because the repair may free capacity for them."),
    "kubelet_silent": _(
        "The kubelet of {node} is silent. Waiting for its agent to report another boot, or its machine to be off."
    ),
    "pods_freed": _(
        "{node} was rebooted or is off, and its kubelet is silent. Kubernetes deletes its pods (taint {taint})."
    ),
    "reboot_not_proved": _(
        "The kubelet of {node} is silent, and nothing proves that the machine was rebooted. Make sure that it is off "
        "or rebooted, then delete its pods with force."
    ),
    "jobs_not_back": _("Restarted jobs are not running after {minutes} min. Check why their pods do not start."),
    "job_failed_again": _("{job} failed after its restart."),
    # stop_jobs
    "jobs_stopped": _("Stopped: {jobs}."),
    "jobs_not_stopped": _("Not stopped: {jobs}."),
    # run_checks
    "checks_requested": _("Health checks requested ({request}). Waiting for the results."),
    "checks_not_run": _("The checks did not run. {why}"),
    "checks_failed": _("Checks failed: {checks}"),
    "checks_broken": _("Checks could not be completed, which says nothing about the node: {checks}"),
    "checks_unknown": _("The agent does not have these checks: {checks}."),
    "checks_inconclusive": _("The checks were inconclusive: {why}"),
    "no_results": _("no result was returned"),
    "checks_done": _("Checks finished: {results}."),
    "checks_passed": _("{count} passed"),
    "checks_warned": _("{count} with warnings"),
    "checks_skipped": _("{count} skipped"),
    "checks_other": _("{count} with another result"),
    # a node of a check run that has no results
    "agent_not_reporting": _("its agent has not reported recently"),
    "stopped_because": _("stopped: {why}"),
    # notify
    "notify_waiting": _("Waiting for the notification to be delivered."),
    "notify_timeout": _("Not delivered within {minutes} min. The plan continues."),
    "notify_delivered": _("Delivered to {channel}."),
    "notify_failed": _("Not delivered to {channel}: {why}"),
    "notify_channel_deleted": _("Not delivered: channel {channel} was deleted."),
    "notify_no_channel": _("Nobody was notified: channel {channel} does not exist or is switched off."),
    "notify_no_route": _("Nobody was notified: no route takes messages from rules."),
    # webhook
    "webhook_delivered": _("{host} was notified."),
    "webhook_not_delivered": _("{host} was not notified."),
    "no_callback_secret": _(
        "The cluster has no decision secret, so a callback could not be verified. Set one, then retry."
    ),
    "handover_failed": _("The node could not be handed to {host}. {why}"),
    "handed_over": _("Handed to {host} until {until}."),
    "handed_back": _("{host} returned the node."),
    "handed_back_because": _("{host} returned the node: {message}"),
    "not_repaired": _("{host} could not repair the node."),
    "not_repaired_because": _("{host} could not repair the node: {message}"),
    "callback_timeout": _("{host} did not call back in time."),
    # verify
    "faults_since_repair": _("Faults occurred after the repair: {faults}."),
    "faults_not_over": _("Faults still occur: {faults}. Waiting until none has occurred for the hold-down time."),
    "rebooted_again": _("The node rebooted again. This rescue did not request the reboot."),
    "verify_not_ready": _("Waiting for the node to become Ready."),
    "agent_not_back": _("No agent report since the node came back. Silence does not prove health."),
    "verify_waits_for_agent": _("Waiting for the agent to report after the repair."),
    "agent_fell_silent": _("The node's agent has gone silent. Silence does not prove health."),
    "verify_waits_for_silent_agent": _("The node's agent has gone silent. Waiting for a report."),
    "hold_down": _("Healthy so far; waiting for {seconds} s without a fault."),
    "verify_waits_for_gpus": _("Waits until pods can get all GPUs: {missing} of {count} are not allocatable."),
    "gpus_still_unallocatable": _("{missing} of {count} GPUs are still not allocatable."),
    "checks_still_fail": _("Checks still fail: {checks}."),
    "checks_not_passed_yet": _("Checks have not passed yet: {checks}."),
    "verified_healthy": _("The node is Ready, the agent reports, and no fault occurred since the repair."),
    "verify_waits_for_doubt": _(
        "These may be from before the repair or from after it: {reports}. Those that still stand at {until} count."
    ),
    "late_reports": _("Not counted, because it is from before the repair: {reports}."),
    # validate
    "validation_of_other_faults": _("Another rule isolates the node for {faults}. A validation does not answer that."),
    "validation_waits_for_gpus": _("Waiting until no pod uses the node's GPUs: {pods}."),
    "validation_requested": _("validation {validation}"),
    "validation_not_begun": _("Validation {validation} ({profile}) waits for room or for idle GPUs."),
    "validation_going_on": _("Validation {validation} ({profile}) is running."),
    "validation_of_node_passed": _("The node passed validation {validation} ({profile})."),
    "validation_of_node_failed": _("The node failed validation {validation} ({profile}). {why}"),
    "validation_with_faults": _("Faults during validation {validation} ({profile}): {faults}."),
    "validation_not_proven": _("Validation {validation} ({profile}) did not prove that the node is healthy. {why}"),
    "validation_was_cancelled": _("Validation {validation} ({profile}) was cancelled."),
    "validation_deleted": _("Validation {validation} does not exist any more."),
}
