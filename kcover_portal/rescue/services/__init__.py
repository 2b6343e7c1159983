"""Deciding and doing: judge an incident, lay a rescue down, run it, steer it."""

from kcover_portal.rescue.services.approving import approve, reject
from kcover_portal.rescue.services.calling_back import callback, take_over
from kcover_portal.rescue.services.judging import judge, judge_and_run
from kcover_portal.rescue.services.opening import Refused
from kcover_portal.rescue.services.reconciling import reconcile
from kcover_portal.rescue.services.requesting import LimitReached, Preview, Unmet, preview, request, request_plan
from kcover_portal.rescue.services.running import nudge, run
from kcover_portal.rescue.services.steering import cancel, retry, skip
from kcover_portal.rescue.services.sweeping import Rung, sweep
from kcover_portal.rescue.services.withdrawing import withdraw

__all__ = [
    "LimitReached",
    "Preview",
    "Refused",
    "Rung",
    "Unmet",
    "approve",
    "callback",
    "cancel",
    "judge",
    "judge_and_run",
    "nudge",
    "preview",
    "reconcile",
    "reject",
    "request",
    "request_plan",
    "retry",
    "run",
    "skip",
    "sweep",
    "take_over",
    "withdraw",
]
