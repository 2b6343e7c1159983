"""reboot: asks for one reboot of the boot that was found, and waits until the node reports another.

The boot id asked at is stored before the call. Whatever is unclear afterwards (time-out, crash, a lost answer) is
settled by looking at the node's boot id, never by asking twice for the same boot (invariants 13, 16, 17).

What was asked ends with the machine that it reboots, too: a job's pod dies and the job has failed, or its deadline
passes while the firmware counts memory; a command is not answered in time. So that word alone holds nothing: the node
is looked at after it, and where it went down since it was asked to, or may be about to, its boot id is waited for.
"""

from datetime import datetime, timedelta
from typing import Any

from kcover import lifecycle
from kcover_portal.kube import port
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.drivers import Driver, agent, job
from kcover_portal.rescue.actions.outcome import Done, Hold, Outcome, Wait

DRIVERS: dict[str, Driver] = {"agent": agent, "job": job}
POLL_SECONDS = 1.0


def run(context: Context) -> Outcome:
    """Waits out the rule's wait time, asks once, then looks at the boot id until it changes or time is up."""
    node = marking.expect_isolated(context)
    done = _rebooted(context, node)
    if done is not None:
        return done
    if not context.step.progress.get("asked"):
        return _before_asking(context, node)
    return _after_asking(context)


def _rebooted(context: Context, node: port.Node) -> Done | None:
    """The step's end, where the node reports another boot than the one that is to end."""
    old = context.step.progress.get("boot_id")
    return Done(f"the node reports a new boot, {node.boot_id[:8]}") if old and node.boot_id not in ("", old) else None


def _before_asking(context: Context, node: port.Node) -> Outcome:
    undrained = context.rescue.steps.filter(name="drain").exclude(state__in=lifecycle.FINISHED_STEP).exists()
    if undrained:
        return Hold("the drain did not end well, and nothing is rebooted undrained")
    wait = timedelta(seconds=context.step.args.get("wait_seconds", 0)) - (context.now - _drained_at(context))
    if wait > timedelta(0):
        return Wait(wait.total_seconds(), "the rule waits between drain and reboot")
    if not node.boot_id:
        return Hold("the cluster does not tell the node's boot id, so a reboot could not be told from none")
    if "driver" not in context.step.progress:
        context.check_guards(destructive=True)
        boot_id = context.step.progress.get("boot_id", node.boot_id)
        context.remember(boot_id=boot_id, was_ready=node.ready, **_way(context))
    marking.restate(context, "rebooting")
    name, key = context.step.progress["driver"], agent.key_of(context, "reboot")
    driver = DRIVERS[name]

    def ask() -> str:
        return driver.ask(context, key=key, boot_id=context.step.progress["boot_id"])

    asked = context.write(
        "reboot", ask, destructive=True, data={"driver": name, "boot_id": context.step.progress["boot_id"], "key": key}
    )
    context.remember(asked=asked, asked_at=context.now.isoformat())
    return Wait(POLL_SECONDS, f"asked for by {asked}")


def _drained_at(context: Context) -> datetime:
    """When the step before ended: not when this one began, which a guard's refusal sets anew."""
    before = context.rescue.steps.filter(index__lt=context.step.index).order_by("-index").first()
    return (before and before.finished_at) or context.step.started_at or context.now


def _after_asking(context: Context) -> Outcome:
    progress = context.step.progress
    still = "the node still reports the old boot"
    asked_for = context.now - datetime.fromisoformat(progress["asked_at"])
    driver = DRIVERS[progress["driver"]]
    ended = driver.ended(context, key=agent.key_of(context, "reboot"))
    if ended is not None:
        node = marking.expect_isolated(context)  # as it is after that word: the look before it is too old to judge by
        done = _rebooted(context, node)
        if done is not None:
            return done
        went_down = progress.get("was_ready") and not node.ready
        if not went_down and asked_for >= driver.BELIEVED_AFTER:
            return Hold(f"{ended}; {still}")
        where = "went down since, and reports no new boot yet" if went_down else "may be about to go down"
        still = f"{ended}; the node {where}"
    limit = timedelta(seconds=context.cluster.ready_within)
    if asked_for > limit:
        return Hold(f"asked for by {progress['asked']}, but no new boot was reported in {limit}: look at the machine")
    return Wait(POLL_SECONDS, f"asked for by {progress['asked']}; {still}")


def _way(context: Context) -> dict[str, Any]:
    """By whom it will be asked for; auto takes the agent where one reported lately, else a job, whose name is kept."""
    chosen = context.cluster.reboot
    if chosen == "auto":
        chosen = "agent" if agent.usable(context) else "job"
    if chosen != "job":
        return {"driver": chosen}
    place = job.place(context, key=agent.key_of(context, "reboot"))
    return {"driver": chosen, "jobs": [*context.step.progress.get("jobs", ()), place]}
