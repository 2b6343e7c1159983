"""replace: have the machine replaced by another one, once. The node leaves the cluster for good."""

from dataclasses import dataclass
from datetime import datetime

from kcover.actions import record
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``driver``, ``kind``, ``namespace``, ``machine`` and ``uid``: the object that was chosen before the request.

    ``provider_id``: the machine's. ``asked_at``: of the request, stored before it is made; None if it was certainly
    not made. ``evidence``: what became of it, since the step first waited (``evidence_since``).
    """

    driver: str = shown(_("Machine driver"), default="")
    kind: str = hidden(default="")
    namespace: str = hidden(default="")
    machine: str = shown(_("Machine"), default="")
    uid: str = hidden(default="")
    provider_id: str = shown(_("Provider ID"), default="")
    asked_at: datetime | None = shown(_("Requested at"), ValueFormat.MOMENT, default=None)
    evidence: Reason | None = shown(_("Collected evidence"), ValueFormat.REASON, default=None, kept=True)
    evidence_since: datetime | None = hidden(default=None, kept=True)

    @property
    def committed(self) -> bool:
        """A requested replacement is always waited for."""
        return self.asked_at is not None


SPEC = ActionSpec(
    name="replace",
    title=_("Replace the machine"),
    place=(Stage.REPAIR, 5),
    policy=PolicyAction(name="replace", needs=(("drain",),), in_objects=False),
    implies=("cordon",),
    progress=Progress,
    isolates=True,
    takes_work_away=True,
    mends=True,
    destroys_evidence=True,
)
