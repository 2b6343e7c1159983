"""reset: reset one GPU, if exactly one is affected and nothing uses it any more; the node keeps running.

The GPU and the driver are stored before the call. The driver reports the result; if it is unknown, a person is
asked. One request never resets a GPU twice.
"""

from datetime import timedelta

from kcover import audit, reasons
from kcover.actions import reset as core
from kcover.nodes.node_stage import Stage
from kcover_portal.kube import port
from kcover_portal.machines import queries as machines
from kcover_portal.rescue.step import evidence, plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.devices import affected_gpus
from kcover_portal.rescue.step.drivers import Resetter, agent, agent_reset, janitor_reset
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome, Poll, Wait

DRIVERS: dict[str, Resetter] = {"agent": agent_reset, "nvsentinel": janitor_reset}
POLL_SECONDS = 1.0
LEAVING_TIME_LIMIT = timedelta(minutes=5)  # for pods that a drain left behind and that are on their way out
MAX_NAMES_SHOWN = 8


def run(context: Context) -> Outcome:
    """Requests the reset once, then waits for the driver's result."""
    node_marks.restate(context, Stage.QUARANTINED)
    progress = context.step.progress_as(core.Progress)
    if progress.request is None:
        return _request_reset(context)
    ended = DRIVERS[progress.driver].ended(context, key=agent.key_of(context.step))
    if ended is None:
        return Poll(POLL_SECONDS, reasons.of("reset_requested", request=progress.request))
    gpu = next(iter(progress.gpu.values()))
    if ended.done:
        return Done(reasons.of("gpu_reset", gpu=gpu))
    return Hold(reasons.of("reset_unconfirmed", gpu=gpu, why=ended.reason))


def _request_reset(context: Context) -> Outcome:
    if plan_steps.undrained(context.steps):
        return Hold(reasons.of("not_drained_no_reset"))
    users = [pod for pod in context.kube.list_pods(node=context.node.name) if pod.gpus and not pod.terminal]
    if users:
        return _in_use(context, users)
    if not context.step.progress_as(core.Progress).driver:
        gpu = _affected_gpu(context)
        if isinstance(gpu, Hold):
            return gpu
        driver_name = _driver_of(context)
        refusal = DRIVERS[driver_name].refusal(context)
        if refusal:
            return Hold(refusal)
        awaited = evidence.wait(context)
        if awaited is not None:
            return awaited
        context.check_guards(destructive=True)
        context.remember(gpu=gpu, driver=driver_name)
    progress = context.step.progress_as(core.Progress)
    wanted = dict(progress.gpu)
    driver, key = DRIVERS[progress.driver], agent.key_of(context.step)
    request = context.write(
        audit.Call.RESET,
        lambda: driver.ask(context, key=key, gpu=wanted),
        destructive=True,
        wanted=audit.GpuReset(driver=progress.driver, key=key, **wanted),
    )
    context.remember(request=request)
    return Poll(POLL_SECONDS, reasons.of("reset_requested", request=request))


def _driver_of(context: Context) -> str:
    """NVSentinel if it is the node's machine driver, otherwise the agent."""
    driver = machines.driver_of(context.node)
    return "nvsentinel" if driver is not None and driver.kind == driver.Kind.NVSENTINEL else "agent"


def _in_use(context: Context, users: list[port.Pod]) -> Outcome:
    names = ", ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in users)[:MAX_NAMES_SHOWN])
    leaving = all(pod.deleting for pod in users)
    if leaving and context.now - (context.step.started_at or context.now) < LEAVING_TIME_LIMIT:
        return Wait(POLL_SECONDS, reasons.of("gpu_users_leaving", pods=names))
    return Hold(reasons.of("gpu_in_use", pods=names))


def _affected_gpu(context: Context) -> dict[str, str] | Hold:
    """The one GPU that the node's faults name, as the agent identifies it; Hold unless it is exactly one."""
    affected = affected_gpus.find(context)
    if affected.unnamed is not None:
        return Hold(reasons.of("fault_names_no_gpu", kind=affected.unnamed.kind, code=affected.unnamed.code))
    if len(affected.gpus) != 1:
        count = len(affected.gpus)
        return Hold(reasons.of("several_gpus_hit", count=count) if count else reasons.of("no_gpu_named"))
    return affected.gpus[0]
