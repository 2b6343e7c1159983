"""Outcomes of the steps that change the node: cordon, taint, label, drain, reboot, reset, release."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Requests that steps make of others, as other sentences name them.
    "agent_command": _("agent command {command}"),
    "reboot_job": _("job {job}"),
    "no_reason_given": _("no reason given"),
    "no_answer_in_time": _("no answer in time"),
    "command_withdrawn": _("revoked: {why}"),
    "its_rescue_ended": _("its rescue has ended"),
    "its_step_skipped": _("its step was skipped"),
    "its_run_stopped": _("its run was stopped"),
    "answered_late": _("answered after the deadline: {answer}"),
    "answered_after_withdrawal": _("{withdrawn}; the agent had already fetched the command: {answer}"),
    "names_and_more": _("{names} and {more} more"),
    "a_disruption_budget": _("a PodDisruptionBudget"),
    "agent_refused": _("The agent refused ({why})."),
    "agent_failed": _("The agent failed ({why})."),
    "agent_command_expired": _("The agent command expired ({why})."),
    # Changes of the node.
    "cordoned": _("Cordoned."),
    "excluded_by_hand": _("Excluded. The portal leaves the node alone until an operator ends the exclusion."),
    "exclusion_ended": _("The exclusion has ended. Open faults of the node are decided again."),
    "exclusion_ended_by_person": _("Only a person can end an exclusion."),
    "cordoned_already": _("Already cordoned by someone else."),
    "tainted": _("Tainted: {taint}."),
    "labelled": _("Label set: {label}."),
    "foreign_taint": _(
        "Nothing was changed: taint {taint} on {node} belongs to someone else, and {wanted} would replace it."
    ),
    "marks_removed": _("Removed: {changes}."),
    "mark_removed": _("Removed the portal's mark."),
    "marks_unproved": _("Left as they are, because no record of the portal states that it changed them: {changes}."),
    "marks_unproved_kept": _(
        "The mark on {node} still names them. Remove those of the portal with kubectl, then release the node again. "
        "To keep them all, remove the annotation kcover.io/rescue."
    ),
    "change_cordon": _("cordon"),
    "change_taint": _("taint {taint}"),
    "change_label": _("label {label}"),
    "foreign_cordon_kept": _("The node stays cordoned by someone else."),
    "release_still_cordoned": _("The node is cordoned again, so nothing was removed."),
    "escalated": _("{message}"),
    # drain
    "pods_evicted": _("Pods evicted: {count}."),
    "no_pods_to_evict": _("No pods to evict."),
    "drain_blocked": _("Eviction of {pods} is refused by {budgets}. Retrying until {until}."),
    "drain_leaving": _("Waiting for pods to exit ({count}): {pods}."),
    "drain_timeout": _("Drain timed out. Pods still on the node ({count}): {pods}."),
    "drain_timeout_proceed": _("Drain timed out. Continuing with pods still on the node ({count}): {pods}."),
    "drain_timeout_force": _("Drain timed out. Pods deleted by force ({count}): {pods}."),
    "drain_force_failed": _("Pods did not exit even after forced deletion ({count}): {pods}. Check the kubelet."),
    "workload_drained": _(
        "{workloads}: Kueue replaces one node at a time, and rescue {rescue} is draining {node}. Waiting until {until}."
    ),
    "workload_not_whole": _("{workloads}: waiting until all pods run again, at most until {until}."),
    "workload_turn_late": _("Nothing was evicted. Retry the step once the pods run."),
    "pod_evicted": _("Evicted."),
    "pod_gone": _("Already gone."),
    "eviction_blocked": _("Refused by a PodDisruptionBudget."),
    # reboot and ready
    "not_drained_no_reboot": _("Not rebooted: the drain did not finish."),
    "reboot_wait": _("Waiting between drain and reboot, as the rule requires."),
    "boot_id_unknown": _("The cluster reports no boot ID for the node, so a reboot could not be confirmed."),
    "reboot_requested": _("Reboot requested ({request}). Waiting for the node to come back."),
    "reboot_confirmed": _("The node rebooted (boot {boot})."),
    "reboot_job_foreign": _(
        "Job {job} is of another node or boot. Another portal or an older database made it. Delete it, then retry."
    ),
    "reboot_job_failed": _("The reboot job failed ({why})."),
    "old_boot": _("The node has not rebooted yet."),
    "went_down": _("The node is down and has not booted yet."),
    "rebooted_by_itself": _("The node's agent reports a reboot. Waiting for the kubelet to confirm it."),
    "may_go_down": _("The node may be about to go down."),
    "reboot_timeout": _(
        "The reboot was not confirmed within {limit} ({request}). Check the machine, for example over its BMC."
    ),
    "ready_new_boot": _("Rebooted and Ready."),
    "booted_not_ready": _("Booted; waiting for the node to become Ready."),
    "not_back_yet": _("Waiting for the node to come back."),
    "ready_timeout": _("The node was not Ready {seconds} s after its reboot. Check the machine."),
    # evidence before a reset or a reboot
    "evidence_awaited": _("Waiting for evidence from the node, at most until {until}."),
    "evidence_stored": _("Stored: {bytes} bytes."),
    "evidence_agent_silent": _("None: the agent does not report."),
    "evidence_agent_old": _("None: the agent has version {version}; {least} is needed."),
    "evidence_too_late": _("None: it did not arrive within {seconds} s."),
    "evidence_not_collected": _("None: {why}"),
    "evidence_damaged": _("None: its bytes did not have the announced SHA-256."),
    "evidence_act_began": _("the act that destroys the evidence has begun"),
    # reset
    "not_drained_no_reset": _("No GPU was reset: the drain did not finish."),
    "reset_requested": _("GPU reset requested ({request}). Waiting for the result."),
    "gpu_reset": _("GPU {gpu} was reset."),
    "reset_unconfirmed": _("The reset of GPU {gpu} is not confirmed. {why}"),
    "gpu_users_leaving": _("Waiting for pods that still use GPUs to exit: {pods}."),
    "gpu_in_use": _("No GPU was reset: pods still use GPUs of this node ({pods})."),
    "fault_names_no_gpu": _("{kind} {code} does not name a GPU, so none can be reset. Reboot the node instead."),
    "several_gpus_hit": _("{count} GPUs are affected, and a reset repairs only one. Reboot the node instead."),
    "no_gpu_named": _("No open fault names a GPU, so none can be reset. Reboot the node instead."),
    "agent_silent_no_reset": _("No GPU was reset: the node's agent is silent, and only the agent can reset a GPU."),
}
