"""Deciding and doing: judge an incident, lay a rescue down, run it, steer it."""

from kcover_portal.rescue.services.approving import approve, reject
from kcover_portal.rescue.services.judging import judge, judge_and_run
from kcover_portal.rescue.services.opening import Preview, Refused, preview, request
from kcover_portal.rescue.services.running import nudge, run, sweep
from kcover_portal.rescue.services.steering import cancel, retry, skip

__all__ = [
    "Preview",
    "Refused",
    "approve",
    "cancel",
    "judge",
    "judge_and_run",
    "nudge",
    "preview",
    "reject",
    "request",
    "retry",
    "run",
    "skip",
    "sweep",
]
