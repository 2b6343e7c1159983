"""verify: prove that the node is healthy, before anything runs on it again (invariant 38)."""

from dataclasses import dataclass
from datetime import datetime

from kcover.actions import record
from kcover.actions.record import ValueFormat, shown
from kcover.actions.spec import ActionSpec, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``agent``: False for a node without an agent, whose report is not part of the proof."""

    agent: bool = shown(_("Agent report required"), ValueFormat.YES_NO, default=True, always=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``silent_at``: when the agent was first found silent at the end of the hold-down time.

    ``quiet_since``: when the last fault of a node was found that is validated without a repair.
    """

    silent_at: datetime | None = shown(_("Agent silent since"), ValueFormat.MOMENT, default=None)
    quiet_since: datetime | None = shown(_("Last fault found"), ValueFormat.MOMENT, default=None)


SPEC = ActionSpec(
    name="verify",
    title=_("Verify"),
    place=(Stage.PROVE, 1),
    requested_by=lambda options: options.verify,
    plan=lambda _attribute, options: Args(agent=options.verify_agent),
    args=Args,
    progress=Progress,
    proves=True,
)
