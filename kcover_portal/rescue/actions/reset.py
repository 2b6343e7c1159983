"""reset: one GPU is reset, where exactly one is hit and nothing uses it any more; the node keeps running.

Which GPU it is, and by whom it is asked for, is stored before the call. The driver tells how it went; where nobody can
tell, a person is asked, and nothing is reset twice for one request.
"""

from datetime import timedelta

from django.db.models import Q

from kcover import lifecycle, xid
from kcover_portal.fleet.models import Gpu
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.drivers import Resetter, agent, reset_by_agent
from kcover_portal.rescue.actions.outcome import Done, Hold, Outcome, Wait

DRIVERS: dict[str, Resetter] = {"agent": reset_by_agent}
POLL_SECONDS = 1.0
LEAVING = timedelta(minutes=5)  # for pods that a drain without end left behind, and that are on their way out
NAMED = 8


def run(context: Context) -> Outcome:
    """Asks once, then waits for the driver's word."""
    marking.restate(context, "quarantined")
    if "asked" not in context.step.progress:
        return _before_asking(context)
    progress = context.step.progress
    ended = DRIVERS[progress["driver"]].ended(context, key=agent.key_of(context, "reset"))
    if ended is None:
        return Wait(POLL_SECONDS, f"asked for by {progress['asked']}")
    gpu = next(iter(progress["gpu"].values()))
    return Done(f"GPU {gpu} was reset") if ended.done else Hold(f"GPU {gpu} is not known to be reset: {ended.said}")


def _before_asking(context: Context) -> Outcome:
    if context.rescue.steps.filter(name="drain").exclude(state__in=lifecycle.FINISHED_STEP).exists():
        return Hold("the drain did not end well, and no GPU is reset under its users")
    users = [pod for pod in context.kube.list_pods(node=context.node.name) if pod.gpus and not pod.terminal]
    if users:
        return _in_use(context, users)
    if "driver" not in context.step.progress:
        gpu = _hit(context)
        if isinstance(gpu, Hold):
            return gpu
        refusal = DRIVERS["agent"].refusal(context)
        if refusal:
            return Hold(refusal)
        context.check_guards(destructive=True)
        context.remember(gpu=gpu, driver="agent")
    name, gpu = context.step.progress["driver"], context.step.progress["gpu"]
    driver, key = DRIVERS[name], agent.key_of(context, "reset")
    asked = context.write(
        "reset",
        lambda: driver.ask(context, key=key, gpu=gpu),
        destructive=True,
        data={"driver": name, "key": key, **gpu},
    )
    context.remember(asked=asked)
    return Wait(POLL_SECONDS, f"asked for by {asked}")


def _in_use(context: Context, users: list[port.Pod]) -> Outcome:
    names = ", ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in users)[:NAMED])
    leaving = all(pod.deleting for pod in users)
    if leaving and context.now - (context.step.started_at or context.now) < LEAVING:
        return Wait(POLL_SECONDS, f"{names} still hold GPUs and are leaving")
    return Hold(f"{names} hold GPUs of the node, and no GPU is reset under its users")


def _hit(context: Context) -> dict[str, str] | Hold:
    """The one GPU that the node's faults name, by what the agent knows it by; Hold where it is not exactly one."""
    about = Incident.objects.filter(Q(rescues=context.rescue) | Q(program=False), node=context.node)
    faults = about.filter(state=Incident.State.OPEN).distinct()
    slots = {xid.slot(gpu.pci): gpu.uuid for gpu in Gpu.objects.filter(node=context.node) if gpu.pci}
    found: dict[str, dict[str, str]] = {}
    for fault in faults:
        slot = xid.slot(fault.device)
        uuid = fault.gpu_uuid or slots.get(slot, "") or (fault.device if fault.device.startswith("GPU-") else "")
        if not uuid and (fault.kind != "xid" or slot is None):
            return Hold(f"{fault.kind} {fault.code} names no GPU, and a reset mends one: reboot the node instead")
        found[uuid or str(slot)] = {"gpu_uuid": uuid} if uuid else {"pci": fault.device}
    if len(found) != 1:
        hit = f"{len(found)} GPUs are hit" if found else "no open fault names a GPU"
        return Hold(f"{hit}, and a reset mends exactly one: reboot the node instead")
    return next(iter(found.values()))
