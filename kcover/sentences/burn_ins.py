"""Burn-ins: the validation of new nodes before their first work."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "burn_in_of_tainted": _("The node has the taint {taint}. It takes work after it has passed {profile}."),
    "burn_in_of_new": _("The machine is new in the cluster. It takes work after it has passed {profile}."),
    "burn_in_waits_for_agent": _("Waiting for a report of the node's agent from the present boot."),
    "readiness_taint_removed": _("Someone removed the taint {taint} from {node} by hand."),
    "not_validated": _("The node has not passed its validation, so the taint {taint} stays."),
    "node_before_first_work": _("{node} has not passed its burn-in."),
    # Why no burn-in of a node has begun.
    "burn_in_off": _("The setting burn_in of cluster {cluster} is off."),
    "burn_in_no_gpus": _("The node reports no GPUs yet."),
    "burn_in_not_ready": _("The node is not Ready."),
    "burn_in_rescue_open": _("Another rescue of the node is open."),
    "burn_in_marked": _("An earlier rescue escalated the node to an operator."),
    "burn_in_over": _(
        "Its burn-in did not pass. Repair and reboot the node to repeat it, or uncordon the node yourself."
    ),
    "burn_in_due": _("The burn-in begins within a minute."),
}
