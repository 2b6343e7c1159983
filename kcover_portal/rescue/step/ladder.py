"""The ladder of a plan: repairs from the mildest to the last, of which each follows only if those before it failed.

A reboot whose end is not proved is followed by the power cycle of the same plan, and that by what people or other
systems do. Once another boot ID proves a reboot, the steps after it have nothing to do.
"""

from collections.abc import Mapping
from typing import Final

from kcover import reasons
from kcover.actions import offline, power_cycle, repair, replace
from kcover.plans import lifecycle
from kcover_portal.kube import port
from kcover_portal.rescue.step import plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Done, Hold

NEXT: Final[Mapping[str, str]] = {  # code of a reason
    power_cycle.SPEC.name: "power_cycle_next",
    offline.SPEC.name: "offline_next",
    replace.SPEC.name: "replace_next",
    repair.SPEC.name: "repair_next",
}
HIGHER: Final = (
    power_cycle.SPEC,
    offline.SPEC,
    replace.SPEC,
    repair.SPEC,
)  # steps that may follow a reboot, in their order


def not_needed(context: Context, node: port.Node) -> Done | None:
    """The outcome of a step if a reboot before it in the plan is proved; None if the step has something to do."""
    old = plan_steps.boot_to_end(context.steps)
    if not old or node.boot_id in ("", old):
        return None
    return Done(reasons.of("reboot_confirmed", boot=node.boot_id[:8]))


def not_proved(context: Context, why: reasons.Reason) -> Done | Hold:
    """The outcome of a repair that has failed: the next step of the ladder follows, or a person decides."""
    later = plan_steps.later(context.steps, context.step)
    coming = {step.name for step in later if step.state not in lifecycle.FINISHED_STEP}
    following = next((spec.name for spec in HIGHER if spec.name in coming), None)
    return Done(reasons.both(why, reasons.of(NEXT[following]))) if following else Hold(why)
