"""run_checks: the node's agent runs health checks now, and their results are part of the verification."""

from dataclasses import dataclass

from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``checks``: their names; empty: the checks that the agent runs periodically."""

    checks: tuple[str, ...] = shown(_("Checks"), ValueFormat.NAMES, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``request``: what was requested."""

    request: Reason | None = shown(_("Requested via"), ValueFormat.REASON, default=None)


def _plan(attribute: Attributes, _options: RuleOptions) -> Args:
    names = attribute.get("checks", "")
    return Args(checks=tuple(names.split(",")) if names else ())


SPEC = ActionSpec(
    name="run_checks",
    title=_("Run checks"),
    place=(Stage.PROVE, 0),
    policy=PolicyAction(name="runChecks", attributes={"checks": attributes.check_names}),
    plan=_plan,
    args=Args,
    progress=Progress,
    request_key="checks",
)
