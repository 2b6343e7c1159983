"""escalate: hand the rescue to a person. The node stays as it is."""

from dataclasses import dataclass

from kcover.actions import record
from kcover.actions.record import shown
from kcover.actions.spec import ActionSpec, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``message``: what a person must do."""

    message: str = shown(_("Message"), default="", always=True)


SPEC = ActionSpec(
    name="escalate",
    title=_("Escalate to an operator"),
    place=(Stage.HAND_OVER, 0),
    requested_by=lambda options: options.escalate is not None,
    plan=lambda _attribute, options: Args(message=options.escalate or ""),
    args=Args,
    calls_person=True,
)
