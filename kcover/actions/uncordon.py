"""uncordon: the node takes work again. One patch removes the portal's cordon, taints, label and mark."""

from dataclasses import dataclass

from kcover.actions import record
from kcover.actions.record import ValueFormat, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``foreign``: a person asked for a schedulable node, so somebody else's cordon and the readiness taint go too.
    ``first_work``: the node passed its burn-in, so the readiness taint is removed, whoever added it.

    ``probation``: the length of the probation as a rule writes it, or "auto"; "" for none.
    """

    foreign: bool = shown(_("Removes someone else's cordon"), ValueFormat.YES_NO, default=False)
    probation: str = shown(_("Probation"), default="")
    first_work: bool = shown(_("Removes the readiness taint"), ValueFormat.YES_NO, default=False)


SPEC = ActionSpec(
    name="uncordon",
    title=_("Uncordon"),
    place=(Stage.RETURN, 0),
    policy=PolicyAction(name="unCordon", own=False, needs=(("reboot", "gpuReset", "powerCycle"),), needs_or="validate"),
    requested_by=lambda options: options.uncordons,
    plan=lambda _attribute, options: Args(probation=options.probation or ""),
    args=Args,
    returns_node=True,
    ends_rescue=True,
)
