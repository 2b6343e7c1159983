"""taint: keep away new pods that do not tolerate the taint.

With the effect NoExecute, Kubernetes also ends every running pod that does not tolerate the taint, regardless of
disruption budgets. The keys of Kubernetes' own domains are signals to its controllers: with ``out-of-service`` they
delete the pods of a silent node, whatever the effect.
"""

from dataclasses import dataclass

from kcover import reasons
from kcover.actions import attributes, record
from kcover.actions.record import shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _
from kcover.values.kube_names import CONTROL_PLANE, is_system_key
from kcover.values.quote import short_repr

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
DEFAULT_KEY = "kcover.io/unhealthy"
DEFAULT_EFFECT = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """The taint to add."""

    key: str = shown(_("Taint key"), default=DEFAULT_KEY, always=True)
    value: str = shown(_("Taint value"), default="", always=True)
    effect: str = shown(_("Taint effect"), default=DEFAULT_EFFECT, always=True)


def _fixed(value: str) -> Reason | None:
    return reasons.of("taint_of_control_plane", value=short_repr(value)) if value in CONTROL_PLANE else None


def _plan(attribute: Attributes, options: RuleOptions) -> Args:
    return Args(
        key=attribute.get("key", DEFAULT_KEY),
        value=attributes.with_code(attribute.get("value", "<code>"), options.code),
        effect=attribute.get("effect", DEFAULT_EFFECT),
    )


SPEC = ActionSpec(
    name="taint",
    title=_("Taint"),
    place=(Stage.KEEP_AWAY, 1),
    policy=PolicyAction(
        name="taint",
        attributes={
            "key": attributes.key("taint"),
            "value": attributes.label_value("taint"),
            "effect": attributes.one_of("effect", EFFECTS),
        },
        when_saved={"key": _fixed},
    ),
    plan=_plan,
    args=Args,
    isolates=True,
    takes_work_away_if=lambda args: args.effect == "NoExecute",
    signals_if=lambda args: is_system_key(args.key),
)
