"""mark_maintenance: labels the node for the team that maintains the machines."""

from dataclasses import dataclass
from datetime import datetime

from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """The value of the label."""

    message: str = shown(_("Message"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """When the label was asked for."""

    marked_at: datetime | None = shown(_("When"), ValueFormat.MOMENT, default=None)


def _plan(attribute: Attributes, options: RuleOptions) -> Args:
    return Args(message=attributes.with_code(attribute["message"], options.code))


SPEC = ActionSpec(
    name="mark_maintenance",
    title=_("Maintenance"),
    place=(Stage.KEEP_AWAY, 9),
    policy=PolicyAction(
        name="markMaintenance",
        attributes={"message": attributes.label_value("message")},
        required=("message",),
        needs=(("cordon", "drain"),),
    ),
    plan=_plan,
    args=Args,
    progress=Progress,
)
