"""The interface for other apps: decide incidents, request, run and control rescues."""

from kcover_portal.rescue.control.approvals import approve as approve, reject as reject
from kcover_portal.rescue.control.callbacks import callback as callback, take_over as take_over
from kcover_portal.rescue.control.hand_approval import (
    is_held_question as is_held_question,
    question_about as question_about,
)
from kcover_portal.rescue.control.many_nodes import (
    MAX_NODES_AT_ONCE as MAX_NODES_AT_ONCE,
    NodePreview as NodePreview,
    NodeResult as NodeResult,
    lacking as lacking,
    preview_nodes as preview_nodes,
    request_nodes as request_nodes,
)
from kcover_portal.rescue.control.operator_commands import cancel as cancel, retry as retry, skip as skip
from kcover_portal.rescue.control.probations import end_probation as end_probation
from kcover_portal.rescue.control.requests import (
    LimitReached as LimitReached,
    PreconditionFailed as PreconditionFailed,
    Preview as Preview,
    preview as preview,
    request as request,
    request_plan as request_plan,
)
from kcover_portal.rescue.decide.after_storm import (
    AfterStorm as AfterStorm,
    HeldByStorm as HeldByStorm,
    after_storm as after_storm,
    held_by_storm as held_by_storm,
)
from kcover_portal.rescue.decide.decisions import decide as decide, decide_and_run as decide_and_run
from kcover_portal.rescue.engine import probation_end
from kcover_portal.rescue.engine.node_changes import nudge as nudge, nudge_changed as nudge_changed
from kcover_portal.rescue.engine.reconcile import reconcile as reconcile
from kcover_portal.rescue.engine.runner import run as run
from kcover_portal.rescue.lifecycle.create import RescueRefused as RescueRefused
from kcover_portal.rescue.lifecycle.revoke import withdraw as withdraw
from kcover_portal.rescue.sweep import RecentRings as RecentRings, has_work as has_work, sweep as sweep

carry_out_probation_end = probation_end.end
