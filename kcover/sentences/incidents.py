"""The messages of incidents that the portal opens itself."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "gpus_unallocatable": _(
        "{missing} of {count} GPUs are not allocatable: the device plugin reports them as unhealthy, or does not run."
    ),
    "gpus_allocatable": _("All GPUs are allocatable again."),
    "name_has_another_machine": _("Another machine has the name of this node now."),
    "agent_silent": _("The agent has not reported since {since}."),
    # Xid 13 and 31, by what else failed.
    "programs_on_one_gpu": _(
        "{programs} programs failed with Xid 13 or 31 on this GPU within {within}, and on no other GPU: {names}. "
        "The GPU is suspected. Run its diagnostics."
    ),
    "program_on_many_gpus": _(
        "{program} failed with Xid 13 or 31 on {gpus} GPUs within {within}. The program is suspected."
    ),
    "program_undecided": _(
        "{programs} programs failed with Xid 13 or 31 on this GPU within {within}. This does not show whether the GPU "
        "or a program is at fault, so it counts as a fault of a program."
    ),
    # Faults beyond the bounds of open incidents.
    "faults_overflow": _("{count} more distinct faults, beyond the limit of {limit} open incidents per kind and node."),
    "faults_overflow_more": _(
        "More than {count} distinct faults, beyond the limit of {limit} open incidents per kind and node."
    ),
    # Storms, by what their nodes have in common.
    "storm_of_code": _("{value} occurred on many nodes at once. Look for a common cause."),
    "storm_of_job": _("Many nodes of job {value} failed at once. Look for a common cause."),
    "storm_of_switch": _("Many nodes on switch {value} failed at once. Look for a common cause."),
    "storm_of_agent_version": _("Many nodes with agent {value} failed at once. Look for a common cause."),
}
