"""The interface for other apps: decide incidents, request, run and control rescues."""

from kcover_portal.rescue.control.approvals import approve, reject
from kcover_portal.rescue.control.callbacks import callback, take_over
from kcover_portal.rescue.control.hand_approval import is_held_question, question_about
from kcover_portal.rescue.control.many_nodes import (
    MAX_NODES_AT_ONCE,
    NodePreview,
    NodeResult,
    lacking,
    preview_nodes,
    request_nodes,
)
from kcover_portal.rescue.control.operator_commands import cancel, retry, skip
from kcover_portal.rescue.control.probations import end_probation
from kcover_portal.rescue.control.requests import (
    LimitReached,
    PreconditionFailed,
    Preview,
    preview,
    request,
    request_plan,
)
from kcover_portal.rescue.decide.after_storm import AfterStorm, HeldByStorm
from kcover_portal.rescue.decide.after_storm import held_rescues as held_by_storm
from kcover_portal.rescue.decide.after_storm import preview as after_storm
from kcover_portal.rescue.decide.decisions import decide, decide_and_run
from kcover_portal.rescue.engine.node_changes import nudge, nudge_changed
from kcover_portal.rescue.engine.probation_end import end as carry_out_probation_end
from kcover_portal.rescue.engine.reconcile import reconcile
from kcover_portal.rescue.engine.runner import run
from kcover_portal.rescue.lifecycle.create import RescueRefused
from kcover_portal.rescue.lifecycle.revoke import withdraw
from kcover_portal.rescue.sweep import RecentRings, sweep, sweepable

__all__ = [
    "MAX_NODES_AT_ONCE",
    "AfterStorm",
    "HeldByStorm",
    "LimitReached",
    "NodePreview",
    "NodeResult",
    "PreconditionFailed",
    "Preview",
    "RecentRings",
    "RescueRefused",
    "after_storm",
    "approve",
    "callback",
    "cancel",
    "carry_out_probation_end",
    "decide",
    "decide_and_run",
    "end_probation",
    "held_by_storm",
    "is_held_question",
    "lacking",
    "nudge",
    "nudge_changed",
    "preview",
    "preview_nodes",
    "question_about",
    "reconcile",
    "reject",
    "request",
    "request_nodes",
    "request_plan",
    "retry",
    "run",
    "skip",
    "sweep",
    "sweepable",
    "take_over",
    "withdraw",
]
