"""What the shipped policies tell people, word for word, so that it can be said in other languages."""

from typing import Final

from kcover.sentences.i18n import gettext_noop as _

DEFAULT: Final = _("a person must look at this node")  # of a rule that escalates without a text

TEXTS: Final = frozenset(
    (
        DEFAULT,
        _("The GPU fell off the bus: take the node out of service and have the hardware repaired."),
        _("The network or the storage of this node does not answer: look at it before jobs do."),
        _("Autopilot reports a failed check, or does not run on this node: look at its checks."),
        _("Inspect the hardware: power leads, seating, NVLink and the bus; call the vendor if it comes back."),
        _("Run the vendor's field diagnostics and ask for a replacement: a reset does not cure this GPU."),
        _("Plan the replacement of this GPU: its power-smoothing circuit reaches the end of its rated life."),
        _("Run the GPU's diagnostics (for example the check dcgm with r=3): several programs failed on this GPU only."),
    )
)
