"""webhook: notify another system, or hand it the node until it calls back."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.sentences.i18n import gettext_noop as _
from kcover.values import durations


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``wait_seconds``: how long the other system may have the node; None: the system is only notified."""

    url: str = shown(_("Address"))
    wait_seconds: int | None = shown(_("Waits for a callback for"), ValueFormat.SECONDS, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``callback``: the other system's ``outcome`` and ``message``, and their time in ``at``."""

    tries: int = shown(_("Calls made"), ValueFormat.NUMBER, default=0)
    given_at: datetime | None = shown(_("Handed over at"), ValueFormat.MOMENT, default=None)
    callback: Mapping[str, str] | None = hidden(default=None)


def _plan(attribute: Attributes, _options: RuleOptions) -> Args:
    wait = durations.parse(attribute.get("waittime", ""))
    return Args(url=attribute["url"], wait_seconds=int(wait.total_seconds()) if wait else None)


SPEC = ActionSpec(
    name="webhook",
    title=_("Call another system"),
    place=(Stage.REPAIR, 0),
    policy=PolicyAction(
        name="webhook",
        attributes={"url": attributes.url, "waittime": attributes.wait},
        required=("url",),
        in_objects=False,  # the portal makes the request, from inside of its network
    ),
    plan=_plan,
    args=Args,
    progress=Progress,
    gives_node_away=True,
    request_key="webhook",
)
