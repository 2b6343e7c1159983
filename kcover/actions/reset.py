"""reset: reset one GPU if exactly one is affected and nothing uses it any more. The node keeps running."""

from collections.abc import Mapping
from dataclasses import dataclass

from kcover import reasons
from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``gpu``: its ``gpu_uuid`` or ``pci`` address. ``driver``: how it is reset. ``request``: what was requested."""

    gpu: Mapping[str, str] = shown(_("GPU"), ValueFormat.VALUES, default={})
    driver: str = shown(_("Reset via"), ValueFormat.CHOICE, default="", choices={"agent": _("the node's agent")})
    request: Reason | None = shown(_("Requested via"), ValueFormat.REASON, default=None)

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
    request_key="reset",
)
