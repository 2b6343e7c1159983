"""standby: a spare takes over the node's role, so that its work has somewhere to go (KCE's enableWarmStandby)."""

from dataclasses import dataclass

from kcover.actions import record
from kcover.actions.record import ValueFormat, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``shortage``: why no standby could be used; the plan continued without one."""

    shortage: bool = shown(_("No standby was available"), ValueFormat.YES_NO, default=False)


SPEC = ActionSpec(
    name="standby",
    title=_("Activate a standby"),
    place=(Stage.MOVE, 0),
    policy=PolicyAction(name="enableWarmStandby", own=False, needs=(("cordon", "drain", "reboot"),)),
    progress=Progress,
)
