"""Questions about the steps of a plan that a worker has read: under its lease, nobody else changes them."""

from collections.abc import Sequence
from datetime import datetime

from kcover import actions
from kcover.plans import lifecycle
from kcover_portal.rescue.models import Step


def named(steps: Sequence[Step], name: str) -> Step | None:
    """The step of that name, if the plan has one; of two rounds the later."""
    return next((step for step in reversed(steps) if step.name == name), None)


def before(steps: Sequence[Step], step: Step) -> list[Step]:
    return [other for other in steps if other.index < step.index]


def later(steps: Sequence[Step], step: Step) -> list[Step]:
    """The steps after this one in its round."""
    return [other for other in steps if other.index > step.index and other.round == step.round]


def undrained(steps: Sequence[Step]) -> bool:
    """Returns whether the plan has a drain that did not finish; then nothing may be taken from the node's users."""
    drain = actions.drain.SPEC.name
    return any(step.name == drain and step.state not in lifecycle.FINISHED_STEP for step in steps)


def boot_to_end(steps: Sequence[Step]) -> str:
    """The boot that the plan's last reboot or power cycle must end; "" if there is none."""
    ending = (step for step in reversed(steps) if step.spec.ends_boot)
    return next((boot for step in ending if (boot := str(step.progress.get("boot_id", "")))), "")


def repaired(steps: Sequence[Step]) -> tuple[datetime, str] | None:
    """When the node's repair was done, and the boot it came up in ("" after a reset); None if nothing was repaired."""
    booted = named(steps, actions.ready.SPEC.name)
    if booted is not None and booted.finished_at is not None:
        return booted.finished_at, booted.typed_progress.new_boot
    mended = named(steps, actions.reset.SPEC.name)
    if mended is not None and mended.finished_at is not None and mended.state == mended.State.DONE:
        return mended.finished_at, ""
    return None


def new_boot(steps: Sequence[Step]) -> str:
    """The boot that the node came up in during the rescue, "" where it was not rebooted."""
    ready = named(steps, actions.ready.SPEC.name)
    return ready.typed_progress.new_boot if ready is not None else ""
