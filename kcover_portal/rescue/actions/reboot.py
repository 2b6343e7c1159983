"""reboot: request one reboot that ends the present boot, and wait until the node reports another.

The boot ID is stored before the request. Whatever is unclear afterwards (a time-out, a crash, a lost answer) is settled
by the node's boot ID, never by a second request for the same boot (invariants 13, 16, 17).

The request may end with the machine that it reboots: a job's pod dies and the job fails, or its deadline passes while
the firmware tests memory; a command gets no answer in time. So a failed request alone does not hold the rescue. The
step looks at the node afterwards, and waits for its boot ID if the node went down or may be about to.

A machine that rebooted by itself has ended the boot that had to end, and its agent refuses the request. The step then
waits for the kubelet to report the new boot. It never reboots that one: the cluster has not shown whose boot it is, and
could not show its end.
"""

from datetime import datetime, timedelta
from typing import Any

from kcover import audit, reasons
from kcover.actions import reboot as core
from kcover.nodes.node_stage import Stage
from kcover_portal.kube import port
from kcover_portal.rescue.step import evidence, ladder, plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.drivers import Driver, agent, job
from kcover_portal.rescue.step.marks import node_marks, out_of_service
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome, Poll, Wait

DRIVERS: dict[str, Driver] = {"agent": agent, "job": job}
POLL_SECONDS = 1.0


def run(context: Context) -> Outcome:
    """Waits as the rule says, requests the reboot once, then watches the boot ID until it changes or time is up."""
    node = node_marks.expect_isolated(context)
    done = _rebooted(context, node)
    if done is not None:
        return done
    if context.step.progress_as(core.Progress).request is None:
        return _request_reboot(context, node)
    return _await_reboot(context)


def _rebooted(context: Context, node: port.Node) -> Done | None:
    """The outcome of the step if the node reports a different boot than the one that had to end; None otherwise."""
    old = context.step.progress_as(core.Progress).boot_id
    if not old or node.boot_id in ("", old):
        return None
    return Done(reasons.of("reboot_confirmed", boot=node.boot_id[:8]))


def _request_reboot(context: Context, node: port.Node) -> Outcome:
    if plan_steps.undrained(context.steps):
        return Hold(reasons.of("not_drained_no_reboot"))
    wait = timedelta(seconds=context.step.args_as(core.Args).wait_seconds) - (context.now - _drained_at(context))
    if wait > timedelta(0):
        return Wait(wait.total_seconds(), reasons.of("reboot_wait"))
    awaited = evidence.wait(context)
    if awaited is not None:
        return awaited
    if not node.boot_id:
        return Hold(reasons.of("boot_id_unknown"))
    progress = context.step.progress_as(core.Progress)
    if not progress.driver:
        context.check_guards(destructive=True)
        context.note(boot_id=progress.boot_id or node.boot_id, was_ready=node.ready, **_driver(context))
        progress = context.step.progress_as(core.Progress)
    node_marks.restate(context, Stage.REBOOTING)
    name, boot_id, key = progress.driver, progress.boot_id, agent.key_of(context.step)
    driver = DRIVERS[name]

    def ask() -> reasons.Reason:
        return driver.ask(context, key=key, boot_id=boot_id)

    wanted = audit.RebootRequest(driver=name, boot_id=boot_id, key=key)
    request = context.write(audit.Call.REBOOT, ask, destructive=True, wanted=wanted)
    context.note(request=request, requested_at=context.now)
    return Poll(POLL_SECONDS, reasons.of("reboot_requested", request=request))


def _drained_at(context: Context) -> datetime:
    """The end of the previous step. The start of this step cannot be used, because a guard's refusal resets it."""
    before = plan_steps.before(context.steps, context.step)
    return (before[-1].finished_at if before else None) or context.step.started_at or context.now


def _await_reboot(context: Context) -> Outcome:
    progress = context.step.progress_as(core.Progress)
    assert progress.request is not None  # it was stored together with ``requested_at``
    assert progress.requested_at is not None
    waiting = reasons.of("reboot_requested", request=progress.request)
    asked_for = context.now - progress.requested_at
    driver = DRIVERS[progress.driver]
    ended = driver.ended(context, key=agent.key_of(context.step))
    if ended is not None:
        node = node_marks.expect_isolated(context)  # read again: what was read before the request ended is too old
        done = _rebooted(context, node)
        if done is not None:
            return done
        if progress.was_ready and not node.ready:
            looks = "went_down"
        elif _rebooted_by_itself(context, node, since=progress.requested_at):
            looks = "rebooted_by_itself"
        elif asked_for < driver.BELIEVED_AFTER:
            looks = "may_go_down"
        else:
            return ladder.not_proved(context, reasons.both(ended, reasons.of("old_boot")))
        waiting = reasons.both(waiting, ended, reasons.of(looks))
    limit = timedelta(seconds=context.cluster.ready_within)
    if asked_for > limit:
        timeout = reasons.of("reboot_timeout", request=progress.request, limit=reasons.span(limit))
        return ladder.not_proved(context, timeout)
    return Poll(POLL_SECONDS, waiting)


def _rebooted_by_itself(context: Context, node: port.Node, *, since: datetime) -> bool:
    """Returns whether the agent reports a boot that the kubelet does not: a reason to wait, and no proof."""
    return out_of_service.is_silent(node) and out_of_service.is_rebooted(context, node, silent_since=since)


def _driver(context: Context) -> dict[str, Any]:
    """The driver. ``auto`` takes the agent if it reported recently, otherwise a job, whose name is stored."""
    chosen = context.cluster.reboot
    if chosen == "auto":
        chosen = "agent" if agent.usable(context) else "job"
    if chosen != "job":
        return {"driver": chosen}
    place = str(job.place(context, key=agent.key_of(context.step)))
    return {"driver": chosen, "jobs": (*context.step.progress_as(core.Progress).jobs, place)}
