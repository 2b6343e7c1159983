"""Probations: their length and its basis, how they begin and end."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "fault_class_program": _("program"),
    "fault_class_check": _("check"),
    "fault_class_memory": _("GPU memory"),
    "fault_class_nvlink": _("NVLink"),
    "fault_class_bus": _("PCIe bus"),
    "fault_class_firmware": _("driver and firmware"),
    "fault_class_hardware": _("hardware"),
    "fault_class_returned": _("returned from repair"),
    "probation_by_rule": _("The rule sets a probation of {length}."),
    "probation_by_chance": _(
        "{repeats} of {returns} returns of class {fault_class} failed again within {days} d. "
        "After a probation of {length}, the chance of a fault within 24 h is {permille} in 1,000."
    ),
    "on_probation_until": _("On probation until {until}. {why}"),
    "no_probation_needed": _("No probation is needed. {why}"),
    "probation_over": _("The probation is over."),
    "probation_ended_by": _("{by} ended the probation."),
    "probation_ended_by_because": _("{by} ended the probation: {why}"),
    "probation_removed_by_hand": _("Someone removed the taint of the probation from {node} by hand."),
    "probation_renewed": _("Rescue {rescue} returned the node on a new probation."),
    "probation_never_began": _("The rescue ended before the node was returned."),
    "no_probation": _("{node} is not on probation."),
    "node_on_probation": _("{node} is on probation."),
}
