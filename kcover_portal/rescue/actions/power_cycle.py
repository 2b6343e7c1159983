"""power_cycle: switch the machine off through its controller, see it off, switch it on, and wait for another boot.

The request to switch off is stored before it is made. One with an unknown result counts as made and is not repeated
(invariants 13, 16, 17): the controller's word that the machine is off, or another boot ID, shows that it was carried
out. If neither appears, a person is asked. So no boot that began meanwhile is ended.

The request to switch on is made only while the controller says that the machine is off. It ends no work, so it may be
repeated. A machine that the portal did not switch off is not switched on: somebody may be working on it.

Another system (a webhook) power-cycles a machine by one request of the same kind. Its power cannot be read.

After a reboot in the same plan, the step does nothing if the reboot is proved. If the power cycle fails, a step after
it in the plan (``step.ladder``) follows; with an unknown result, a person decides.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from kcover import audit, reasons
from kcover.actions import power_cycle as core
from kcover.nodes.node_stage import Stage
from kcover_portal.kube import port
from kcover_portal.machines import services as machines
from kcover_portal.machines.drivers import Power, Seen, Switched
from kcover_portal.rescue.step import evidence, ladder, plan_steps
from kcover_portal.rescue.step.context import Context, HeldBack
from kcover_portal.rescue.step.drivers import agent
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome, Poll, Retry, Wait

POLL_SECONDS = 2.0
UNCLEAR_WITHIN = timedelta(seconds=60)  # a request whose answer was lost has had its effect by then
OFF_WITHIN = timedelta(minutes=5)  # a request that was accepted; servers with GPUs take up to a minute
POWERS = {audit.Call.POWER_OFF: "off", audit.Call.POWER_ON: "on", audit.Call.POWER_CYCLE: "cycle"}
ON_AGAIN_AFTER = timedelta(seconds=60)  # a machine that is still off so long after the request


def run(context: Context) -> Outcome:
    """Switches the machine off once and on again, then watches the boot ID until it changes or time is up."""
    node = node_marks.expect_isolated(context)
    old = _progress(context).boot_id
    if old and node.boot_id not in ("", old):
        return Done(reasons.of("reboot_confirmed", boot=node.boot_id[:8]))
    if plan_steps.undrained(context.steps):
        return Hold(reasons.of("not_drained_no_power_cycle"))
    if not node.boot_id:
        return Hold(reasons.of("boot_id_unknown"))
    try:
        controller = _controller(context, node)
        if not _progress(context).committed:  # later it may be off: it must be switched on, whatever others state
            controller.check_stated()
        if controller.is_requested:
            return _request(context, controller)
        seen = controller.look()
    except machines.Unusable as error:
        return _unusable(context, error)
    progress = _progress(context)
    if progress.off_at is not None:
        return _switch_on(context, controller, seen)
    if progress.off_asked_at is not None:
        return _await_off(context, controller, seen)
    return _switch_off(context, controller, seen)


def _request(context: Context, controller: machines.Controller) -> Outcome:
    """Asks another system to power-cycle the machine, once. Its power cannot be read: only the boot ID is watched."""
    progress, host, limit = _progress(context), controller.host, timedelta(seconds=context.cluster.ready_within)
    requested = Poll(POLL_SECONDS, reasons.of("machine_cycle_requested", host=host))
    if progress.off_asked_at is not None:
        if context.now - progress.off_asked_at <= limit:
            return requested
        return ladder.not_proved(context, reasons.of("machine_cycle_timeout", host=host, limit=reasons.span(limit)))

    def ask() -> Switched:
        boot_id, key = _progress(context).boot_id, agent.key_of(context.step)
        return controller.ask(boot_id=boot_id, delivery=key, now=context.now)

    awaited = evidence.wait(context)
    if awaited is not None:
        return awaited
    answer = _end_boot(context, controller, audit.Call.POWER_CYCLE, ask)
    if answer.taken or answer.unclear:
        return requested
    refused = reasons.of("machine_cycle_refused", host=host, why=answer.reason)
    return Retry(refused) if answer.later else Hold(refused)


def _progress(context: Context) -> core.Progress:
    return context.step.progress_as(core.Progress)


def _controller(context: Context, node: port.Node) -> machines.Controller:
    """The node's controller. One that was chosen for the request stays the step's. Raises machines.Unusable."""
    controller = machines.controller_of(context.node, node)
    progress = _progress(context)
    if progress.driver and (controller.driver.name, controller.host) != (progress.driver, progress.machine):
        changed = reasons.of("machine_driver_changed", driver=progress.driver, host=progress.machine)
        raise machines.Unusable(changed, lasting=True)
    return controller


def _unusable(context: Context, error: machines.Unusable) -> Outcome:
    if error.lasting:
        begun = _progress(context).committed  # then the machine may be off: a person decides
        stays = begun or error.another_machine  # a stronger step could end the work of the wrong machine
        return Hold(error.reason) if stays else ladder.not_proved(context, error.reason)
    if not _progress(context).committed:
        return Retry(error.reason)
    return _late(context) or Poll(POLL_SECONDS, error.reason)


def _switch_off(context: Context, controller: machines.Controller, seen: Seen) -> Outcome:
    progress, host = _progress(context), controller.host
    if seen.power is Power.OTHER:
        return Retry(reasons.of("machine_power_unknown", host=host))
    if seen.power is Power.OFF:
        if not progress.tries and not progress.retry:
            return Hold(reasons.of("machine_found_off", host=host))
        context.remember(driver=controller.driver.name, machine=host, off_at=context.now)
        return _switch_on(context, controller, seen)
    awaited = evidence.wait(context)
    if awaited is not None:
        return awaited
    answer = _end_boot(context, controller, audit.Call.POWER_OFF, partial(controller.switch, seen, Power.OFF))
    requested = reasons.of("machine_off_requested", host=host)
    if answer.taken or answer.unclear:
        return Poll(POLL_SECONDS, reasons.both(requested, answer.reason if answer.unclear else None))
    refused = reasons.of("machine_off_refused", host=host, why=answer.reason)
    return Retry(refused) if answer.later else Hold(refused)


def _await_off(context: Context, controller: machines.Controller, seen: Seen) -> Outcome:
    progress, host = _progress(context), controller.host
    assert progress.off_asked_at is not None  # of the caller's branch
    if seen.power is Power.OFF:
        context.remember(off_at=context.now)
        return _switch_on(context, controller, seen)
    waited = context.now - progress.off_asked_at
    if waited > (OFF_WITHIN if progress.accepted else UNCLEAR_WITHIN):
        if progress.accepted:
            return ladder.not_proved(context, reasons.of("machine_still_on", host=host))
        return Hold(reasons.of("machine_off_unclear", host=host))
    return Poll(POLL_SECONDS, reasons.of("machine_off_requested", host=host))


def _switch_on(context: Context, controller: machines.Controller, seen: Seen) -> Outcome:
    progress, host = _progress(context), controller.host
    assert progress.off_at is not None  # of the caller's branch
    late = _late(context)
    if late is not None:
        return late
    starting = Poll(POLL_SECONDS, reasons.of("machine_on_requested", host=host))
    if seen.power is not Power.OFF:
        return starting
    rest = controller.off_time - (context.now - progress.off_at)
    if rest > timedelta(0):
        return Wait(rest.total_seconds(), reasons.of("machine_off"))
    if progress.on_at is not None and context.now - progress.on_at < ON_AGAIN_AFTER:
        return starting
    context.remember(on_at=context.now)
    answer = _call(context, controller, audit.Call.POWER_ON, partial(controller.switch, seen, Power.ON))
    if answer.taken or answer.unclear:
        return starting
    context.remember(on_at=None)
    refused = reasons.of("machine_on_refused", host=host, why=answer.reason)
    return Poll(POLL_SECONDS, refused) if answer.later else Hold(refused)


def _late(context: Context) -> Done | Hold | None:
    """The outcome if the new boot takes longer than a reboot may; None otherwise."""
    progress, limit = _progress(context), timedelta(seconds=context.cluster.ready_within)
    since = progress.off_at or progress.off_asked_at
    if since is None or context.now - since <= limit:
        return None
    timeout = reasons.of("power_cycle_timeout", host=progress.machine, limit=reasons.span(limit))
    return ladder.not_proved(context, timeout)


def _end_boot(
    context: Context, controller: machines.Controller, kind: audit.Call, call: Callable[[], Switched]
) -> Switched:
    """Stores the request, then makes it. It is forgotten only if it was certainly not carried out. Raises HeldBack."""
    progress = _progress(context)
    context.check_guards(destructive=True)
    node_marks.restate(context, Stage.REBOOTING)
    boot_id = progress.boot_id or controller.node.boot_id
    chosen = {"driver": controller.driver.name, "machine": controller.host, "boot_id": boot_id}
    context.remember(**chosen, tries=progress.tries + 1, off_asked_at=context.now, accepted=False)
    try:
        answer = _call(context, controller, kind, call)
    except HeldBack:  # before the call
        context.remember(off_asked_at=None, tries=progress.tries)
        raise
    if answer.taken:
        context.remember(accepted=True)
    elif not answer.unclear:
        context.remember(off_asked_at=None)
    return answer


def _call(
    context: Context, controller: machines.Controller, kind: audit.Call, call: Callable[[], Switched]
) -> Switched:
    """One request, recorded before and after like a write to the cluster. Raises HeldBack."""
    answers: list[Switched] = []

    def recorded() -> audit.PowerAnswer:
        answers.append(call())
        return audit.PowerAnswer(taken=answers[0].taken, unclear=answers[0].unclear, because=answers[0].reason)

    wanted = audit.PowerChange(
        driver=controller.driver.name,
        machine=controller.host,
        power=POWERS[kind],
        boot_id=_progress(context).boot_id,
        key=agent.key_of(context.step),
    )
    context.write(kind, recorded, destructive=kind is not audit.Call.POWER_ON, wanted=wanted)
    return answers[0]
