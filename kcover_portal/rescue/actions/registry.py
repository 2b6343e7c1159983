"""The actions that the engine can run, by the name of their step in plans."""

from collections.abc import Callable

from kcover_portal.rescue.actions import (
    cordon,
    drain,
    escalate,
    label,
    notify,
    offline,
    power_cycle,
    quarantine_device,
    ready,
    reboot,
    release,
    repair,
    replace,
    reset,
    restart_jobs,
    run_checks,
    standby,
    stop_jobs,
    taint,
    uncordon,
    validate,
    verify,
    webhook,
)
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Outcome

ACTIONS: dict[str, Callable[[Context], Outcome]] = {
    "taint": taint.run,
    "cordon": cordon.run,
    "label": label.run,
    "quarantine_device": quarantine_device.run,
    "notify": notify.run,
    "standby": standby.run,
    "restart_jobs": restart_jobs.run,
    "stop_jobs": stop_jobs.run,
    "drain": drain.run,
    "webhook": webhook.run,
    "reboot": reboot.run,
    "power_cycle": power_cycle.run,
    "offline": offline.run,
    "replace": replace.run,
    "repair": repair.run,
    "reset": reset.run,
    "ready": ready.run,
    "run_checks": run_checks.run,
    "verify": verify.run,
    "validate": validate.run,
    "uncordon": uncordon.run,
    "release": release.run,
    "escalate": escalate.run,
}
