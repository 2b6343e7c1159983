"""Every step that the engine can run, by its name in plans."""

from collections.abc import Callable

from kcover_portal.rescue.actions import (
    cordon,
    drain,
    escalate,
    label,
    ready,
    reboot,
    release,
    restart_jobs,
    standby,
    taint,
    uncordon,
    verify,
)
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Outcome

ACTIONS: dict[str, Callable[[Context], Outcome]] = {
    "taint": taint.run,
    "cordon": cordon.run,
    "label": label.run,
    "standby": standby.run,
    "restart_jobs": restart_jobs.run,
    "drain": drain.run,
    "reboot": reboot.run,
    "ready": ready.run,
    "verify": verify.run,
    "uncordon": uncordon.run,
    "release": release.run,
    "escalate": escalate.run,
}
