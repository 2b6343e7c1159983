"""ready: the node is back, by the cluster's own word: Ready, with a boot id other than the one that was rebooted."""

from datetime import timedelta

from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Hold, Outcome, Wait

POLL_SECONDS = 1.0


def run(context: Context) -> Outcome:
    """Waits for Ready, bounded by the cluster's ``ready_within``."""
    node = marking.expect_isolated(context)
    reboot = queries.step_named(context.rescue, "reboot")
    old = reboot.progress.get("boot_id") if reboot else None
    if node.ready and node.boot_id and node.boot_id != old:
        context.remember(boot_id=node.boot_id)
        return Done("Ready with a new boot id")
    waited = context.now - (context.step.started_at or context.now)
    if waited > timedelta(seconds=context.cluster.ready_within):
        return Hold(f"the node was not Ready {context.cluster.ready_within} s after its reboot: look at the machine")
    return Wait(POLL_SECONDS, "booted, not Ready yet" if node.boot_id != old else "not back yet")
