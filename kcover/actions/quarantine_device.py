"""quarantineDevice: isolate one GPU of the node by a DeviceTaintRule. If that is not possible, isolate the whole node.

The rest of the node keeps working. A DeviceTaintRule needs Dynamic Resource Allocation (DRA): the API server has the
kind, and a DRA driver publishes the GPU in a ResourceSlice of the node. With the effect NoExecute, Kubernetes also ends
the pods that use the GPU and do not tolerate the taint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kcover import reasons
from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _

TAINT_KEY: Final = "kcover.io/unhealthy"
EFFECTS: Final = ("NoSchedule", "NoExecute")  # of device taints; PreferNoSchedule is none
CORDON, HOLD = "cordon", "hold"  # what is done where the device cannot be isolated by itself
DEVICE, NODE = "device", "node"  # what was isolated


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``value`` and ``effect``: of the taint. ``otherwise``: CORDON or HOLD."""

    value: str = shown(_("Taint value"), default="", always=True)
    effect: str = shown(_("Taint effect"), default=EFFECTS[0], always=True)
    otherwise: str = shown(
        _("If the device cannot be isolated"),
        ValueFormat.CHOICE,
        default=CORDON,
        choices={CORDON: _("cordon the whole node"), HOLD: _("escalate to an operator")},
        always=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``isolated``: DEVICE or NODE, stored before the first call; ``because``: why the whole node.

    ``gpu``: its ``gpu_uuid`` or ``pci`` address. ``driver``, ``pool`` and ``device`` name it in the ResourceSlice.
    ``rule``: the name of the DeviceTaintRule, and ``version`` that of its API. ``may_exist``: the rule may have been
    created, so the node's mark keeps its name.
    """

    isolated: str = shown(
        _("Isolated"),
        ValueFormat.CHOICE,
        default="",
        choices={DEVICE: _("one device"), NODE: _("the whole node")},
    )
    because: Reason | None = shown(_("Because"), ValueFormat.REASON, default=None)
    gpu: Mapping[str, str] = shown(_("GPU"), ValueFormat.VALUES, default={})
    device: str = shown(_("Device"), default="")
    driver: str = shown(_("Device driver"), default="")
    pool: str = hidden(default="")
    rule: str = shown("DeviceTaintRule", default="")
    version: str = hidden(default="")
    may_exist: bool = hidden(default=False)

    @property
    def isolated_part(self) -> str:
        """The device, if only that is isolated."""
        return self.device if self.isolated == DEVICE else ""


def _plan(attribute: Attributes, options: RuleOptions) -> Args:
    return Args(
        value=attributes.with_code("<code>", options.code),
        effect=attribute.get("effect", EFFECTS[0]),
        otherwise=attribute.get("otherwise", CORDON),
    )


WHOLE_NODE: Final = reasons.of("isolates_whole_node")

SPEC = ActionSpec(
    name="quarantine_device",
    title=_("Isolate one device"),
    place=(Stage.KEEP_AWAY, 3),
    policy=PolicyAction(
        name="quarantineDevice",
        attributes={
            "effect": attributes.one_of("effect", EFFECTS),
            "otherwise": attributes.one_of("otherwise", (CORDON, HOLD)),
        },
        excludes=dict.fromkeys(("cordon", "drain", "taint", "offline", "repair"), WHOLE_NODE),
    ),
    plan=_plan,
    args=Args,
    progress=Progress,
    isolates=True,
    takes_work_away_if=lambda args: args.effect == "NoExecute",
)
