"""reset: reset one GPU if exactly one is affected and nothing uses it any more. The node keeps running."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kcover import reasons
from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``gpu``: its ``gpu_uuid`` or ``pci`` address. ``driver``: how it is reset. ``request``: what was requested.

    ``evidence``: what became of it, since the step first waited (``evidence_since``).
    """

    gpu: Mapping[str, str] = shown(_("GPU"), ValueFormat.VALUES, default={})
    driver: str = shown(
        _("Reset via"),
        ValueFormat.CHOICE,
        default="",
        choices={"agent": _("the node's agent"), "nvsentinel": "NVSentinel"},
    )
    request: Reason | None = shown(_("Requested via"), ValueFormat.REASON, default=None)
    evidence: Reason | None = shown(_("Collected evidence"), ValueFormat.REASON, default=None, kept=True)
    evidence_since: datetime | None = hidden(default=None, kept=True)

    @property
    def committed(self) -> bool:
        """A requested reset is always completed."""
        return self.request is not None


SPEC = ActionSpec(
    name="reset",
    title=_("Reset the GPU"),
    place=(Stage.REPAIR, 1),
    policy=PolicyAction(
        name="gpuReset",
        attributes={"unCordon": attributes.truth("unCordon")},
        needs=(("drain",),),
        excludes={
            "reboot": reasons.of("reboot_resets_gpus"),
            "powerCycle": reasons.of("power_cycle_resets_gpus"),
        },
    ),
    implies=("cordon", "verify"),
    progress=Progress,
    isolates=True,
    takes_work_away=True,
    mends=True,
    destroys_evidence=True,
    request_key="reset",
)
