"""label: says something about the node to whatever selects by it; keeps no work away by itself."""

from dataclasses import dataclass

from kcover.actions import attributes, record
from kcover.actions.record import shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.sentences.i18n import gettext_noop as _

OWN_PREFIX = "kcover.io/"  # of label keys that the portal itself keeps (interfaces section 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """The label to set."""

    key: str = shown(_("Label key"))
    value: str = shown(_("Label value"), default="", always=True)


def _key(value: str) -> str | None:
    refusal = attributes.key("label")(value)
    if refusal is None and value.startswith(OWN_PREFIX):
        return f"labels that begin with {OWN_PREFIX} are the portal's own: use another name"
    return refusal


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
    ),
    plan=_plan,
    args=Args,
)
