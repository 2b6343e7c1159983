"""validate: a validation of the node must pass before the node is returned."""

from dataclasses import dataclass

from kcover.actions import record
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import ActionSpec, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _
from kcover.validation import fault_classes

FAILED_OUTCOME = "failed_validation"  # of a rescue whose node did not pass
PROFILES = (*fault_classes.STRICTEST_LAST, fault_classes.AUTO)  # that a rule may name


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``profile``: one of PROFILES; with "auto" the step chooses by the faults when it begins.

    ``burn_in``: the node is new and kept from work by the readiness taint, without a cordon.
    """

    profile: str = shown(_("Validation profile"))
    burn_in: bool = shown(_("Burn-in"), ValueFormat.YES_NO, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``profile`` and ``because``: the profile, and why it was chosen. ``validation``: its id, 0 before the request.

    ``boot_id``: the boot in which the node was when the validation was requested.
    """

    profile: str = shown(_("Chosen profile"), default="")
    because: Reason | None = shown(_("Chosen because"), ValueFormat.REASON, default=None)
    validation: int = shown(_("Validation number"), ValueFormat.VALIDATION, default=0)
    boot_id: str = hidden(default="")


SPEC = ActionSpec(
    name="validate",
    title=_("Validate"),
    place=(Stage.PROVE, 2),
    requested_by=lambda options: options.validate is not None,
    implies=("verify",),
    plan=lambda _attribute, options: Args(profile=options.validate or fault_classes.AUTO),
    args=Args,
    progress=Progress,
    proves=True,
    request_key="validate",
)
