"""label: set a label for whatever selects nodes by it. By itself the label does not keep work away.

A controller may take work away when it sees the label: a MIG manager that partitions the GPUs again takes them
from running pods. So approve mode asks before it.
"""

from dataclasses import dataclass

from kcover import reasons
from kcover.actions import attributes, record
from kcover.actions.record import shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _
from kcover.values.kube_names import ROLE_PREFIX, is_fixed_label
from kcover.values.quote import short_repr

OWN_PREFIX = "kcover.io/"  # prefix of the label keys that the portal itself maintains (docs/interfaces.md, section 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """The label to set."""

    key: str = shown(_("Label key"))
    value: str = shown(_("Label value"), default="", always=True)


def _key(value: str) -> Reason | None:
    refusal = attributes.key("label")(value)
    if refusal is None and value.startswith(OWN_PREFIX):
        return reasons.of("label_reserved", prefix=OWN_PREFIX)
    return refusal


def _fixed(value: str) -> Reason | None:
    if is_fixed_label(value):
        return reasons.of("label_of_kubernetes", value=short_repr(value), example=f"{ROLE_PREFIX}NAME")
    return None


def _plan(attribute: Attributes, options: RuleOptions) -> Args:
    return Args(key=attribute["key"], value=attributes.with_code(attribute.get("value", "true"), options.code))


SPEC = ActionSpec(
    name="label",
    title=_("Label"),
    place=(Stage.KEEP_AWAY, 2),
    policy=PolicyAction(
        name="label",
        attributes={"key": _key, "value": attributes.label_value("label")},
        required=("key",),
        when_saved={"key": _fixed},
    ),
    plan=_plan,
    args=Args,
    signals_if=lambda _args: True,
)
