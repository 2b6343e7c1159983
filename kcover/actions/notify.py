"""notify: tell people before work is taken away."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """The message. ``channel`` None: every channel that receives news of rescues."""

    channel: str | None = shown(_("Channel"), default=None)
    message: str | None = shown(_("Message"), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``result``: what became of the message, as the JSON of a reason in ``because``, and its time in ``at``."""

    requested_at: datetime | None = shown(_("Requested at"), ValueFormat.MOMENT, default=None)
    result: Mapping[str, Any] | None = hidden(default=None)


def _plan(attribute: Attributes, options: RuleOptions) -> Args:
    message = attribute.get("message")
    return Args(
        channel=attribute.get("channel"),
        message=message.replace("<code>", options.code) if message is not None else None,
    )


SPEC = ActionSpec(
    name="notify",
    title=_("Notify people"),
    place=(Stage.NOTIFY, 0),
    policy=PolicyAction(name="notify", attributes={"channel": attributes.channel, "message": attributes.text}),
    plan=_plan,
    args=Args,
    progress=Progress,
)
