"""repair: open a repair at the repair desk, and keep the node isolated until a passed validation closes it."""

from dataclasses import dataclass

from kcover import reasons
from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, Refusal, RuleOptions, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _

MAX_NAME = 120  # characters of a vendor or a queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``vendor``: who repairs the machine. ``queue``: of the vendor or of a team. "" for either: people decide."""

    vendor: str = shown(_("Vendor"), default="")
    queue: str = shown(_("Queue"), default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``repair``: the number of the repair, 0 before there is one. A retry looks at the same one again."""

    repair: int = shown(_("Repair"), ValueFormat.NUMBER, default=0, kept=True)


def _name(what: str) -> Refusal:
    def refusal(value: str) -> Reason | None:
        if 0 < len(value) <= MAX_NAME and value.isprintable() and value == value.strip():
            return None
        return reasons.of("repair_name_invalid", name=what, most=MAX_NAME)

    return refusal


def _plan(attribute: Attributes, _options: RuleOptions) -> Args:
    return Args(vendor=attribute.get("vendor", ""), queue=attribute.get("queue", ""))


SPEC = ActionSpec(
    name="repair",
    title=_("Repair"),
    place=(Stage.REPAIR, 6),
    policy=PolicyAction(
        name="repair",
        attributes={"vendor": _name("vendor"), "queue": _name("queue"), "unCordon": attributes.truth("unCordon")},
        excludes={"offline": reasons.of("offline_repairs_node")},
    ),
    implies=("cordon", "drain", "verify"),
    plan=_plan,
    args=Args,
    progress=Progress,
    isolates=True,
)
