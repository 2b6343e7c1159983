"""powerCycle: switch the machine off and on again through its management controller, once."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``boot_id``: the boot that must end. ``driver``: the row of the machine driver, chosen before the request.

    ``tries``: requests to switch off. ``off_asked_at``: of the last one, stored before it is made; None if it was
    certainly not made. ``accepted``: the controller accepted it. ``off_at``: when the machine was seen off. ``on_at``:
    the last request to switch on. ``evidence``: what became of it, since the step first waited (``evidence_since``).
    """

    boot_id: str = shown(_("Boot ID"), default="", kept=True)
    driver: str = shown(_("Machine driver"), default="")
    machine: str = shown(_("Management controller"), default="")
    tries: int = hidden(default=0)
    off_asked_at: datetime | None = shown(_("Switch-off requested at"), ValueFormat.MOMENT, default=None)
    accepted: bool = hidden(default=False)
    off_at: datetime | None = shown(_("Off at"), ValueFormat.MOMENT, default=None)
    on_at: datetime | None = shown(_("Switch-on requested at"), ValueFormat.MOMENT, default=None)

    evidence: Reason | None = shown(_("Collected evidence"), ValueFormat.REASON, default=None, kept=True)
    evidence_since: datetime | None = hidden(default=None, kept=True)

    @classmethod
    def initial(cls, *, boot_id: str) -> Self:
        """A power cycle may end only the boot in which its rescue was opened."""
        return cls(boot_id=boot_id)

    @property
    def committed(self) -> bool:
        """A machine that may be off is always switched on again."""
        return self.off_asked_at is not None or self.off_at is not None


SPEC = ActionSpec(
    name="power_cycle",
    title=_("Power cycle"),
    place=(Stage.REPAIR, 3),
    policy=PolicyAction(
        name="powerCycle",
        attributes={"unCordon": attributes.truth("unCordon")},
        needs=(("drain",),),
        in_objects=False,
    ),
    implies=("cordon", "ready", "verify"),
    progress=Progress,
    isolates=True,
    takes_work_away=True,
    mends=True,
    ends_boot=True,
    destroys_evidence=True,
    request_key="power",
)
