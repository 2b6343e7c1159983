"""Rebuilds the state of a rescue from its audit log entries alone (invariant 46).

Pauses of a worker are not recorded. ``waiting`` and ``running`` are therefore one state here, and an unfinished step is
``pending``, however often it was tried.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from kcover import actions, audit, reasons
from kcover.plans import lifecycle
from kcover_portal.ledger.models import Entry

PAUSES = {"waiting": "running"}  # states of a rescue that the audit log does not distinguish
UNFINISHED = ("pending", "running", "waiting")  # the same for a step
# Acts that do not change the state of the rescue and its steps. A rejection is followed by the rescue's end and a
# callback by the step's end; a guard's refusal leaves the step unfinished.
IRRELEVANT = (
    audit.ClusterCall,
    audit.QuestionCancelled,
    audit.RescueRejected,
    audit.ApprovalLinkMade,
    audit.RescueCalledBack,
    audit.GuardRefused,
    audit.GuardPassed,
    audit.MarksGone,
    audit.MarksFound,
    audit.CommandAnsweredLate,
    audit.EvidenceAct,
    audit.ProbationAct,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """A step after its entries. ``tries`` is the highest attempt that an entry names."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    state: str = "pending"
    because: reasons.Reason | None = None
    tries: int = 0
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueState:
    """A rescue after its entries. ``steps`` are by their index in the plan."""

    rescue: int
    node: str
    requested_by: str
    plan_hash: str
    state: str
    opened_at: datetime
    steps: Mapping[int, StepState]
    outcome: str = ""
    verified: bool | None = None
    needs_human: bool = False
    closed_at: datetime | None = None
    entries: int = 0


def replay(cluster: str, *, rescue: int) -> RescueState:
    """Returns the rescue's state from its entries.

    Raises LookupError if there is no opening entry, or if an entry has a verb that replay does not know. A guessed
    state would be worse than none.
    """
    entries = Entry.objects.filter(cluster=cluster, rescue=rescue).order_by("sequence")
    state = replay_entries(entries.iterator(chunk_size=1000))
    if state is None:
        raise LookupError(f"the audit log of cluster {cluster!r} has no rescue {rescue}")
    return state


def replay_entries(entries: Iterable[Entry]) -> RescueState | None:
    """Returns the state of a rescue after these of its entries, in their order; None without an opening entry.

    Raises LookupError if an entry has a verb that replay does not know.
    """
    state: RescueState | None = None
    for entry in entries:
        act = audit.from_entry(entry)
        if isinstance(act, audit.RescueOpened):
            state = _opened(act, entry)
        elif state is not None:
            state = replace(_after(state, act, entry.at), entries=state.entries + 1)
    return state


def _opened(act: audit.RescueOpened, entry: Entry) -> RescueState:
    return RescueState(
        rescue=act.rescue,
        node=act.node,
        requested_by=entry.actor,
        plan_hash=act.plan_hash,
        state=act.state,
        opened_at=entry.at,
        steps={index: StepState(name=step.name, args=step.args) for index, step in enumerate(act.steps)},
        needs_human=act.state == "held",
        entries=1,
    )


def _after(state: RescueState, act: audit.Act, at: datetime) -> RescueState:
    """Returns the state after one more act. Raises LookupError for an unknown act."""
    match act:
        case audit.RescueEnded():
            return _ended(state, act, at)
        case audit.RescueApproved():
            return replace(state, state="running", needs_human=False) if act.granted else state
        case audit.RescueHeld():
            return replace(state, state="held", needs_human=True)
        case audit.DeviceRuleGone():
            return replace(state, needs_human=True)
        case audit.StepRetried():
            state = _with_step(state, act.step, state="pending", finished_at=None)
            return replace(state, state="running", needs_human=False)
        case audit.StepSkipped():
            state = _with_step(state, act.step, state="skipped", finished_at=at)
            return replace(state, state="running", needs_human=False)
        case audit.StepStartedOver() if act.steps:
            return _second_round(_settled(state, act, at), act, at)
        case _ if isinstance(act, IRRELEVANT):
            return state
        case audit.StepSettled():
            return _settled(state, act, at)
    raise LookupError(f"the audit log has an entry {act.verb} of rescue {state.rescue}, which replay does not know")


def _ended(state: RescueState, act: audit.RescueEnded, at: datetime) -> RescueState:
    """Closes the rescue, which cancels its pending steps."""
    steps = {
        index: replace(step, state="cancelled", finished_at=at) if step.state == "pending" else step
        for index, step in state.steps.items()
    }
    return replace(
        state,
        state=act.state.value,
        outcome=act.outcome,
        needs_human=act.needs_human,
        steps=steps,
        closed_at=at,
    )


def _settled(state: RescueState, act: audit.StepSettled, at: datetime) -> RescueState:
    """Applies a step's entry. A step that failed while the rescue stayed open holds the rescue."""
    finished = act.state not in UNFINISHED
    state = _with_step(
        state,
        act.step,
        state=act.state if finished else "pending",
        because=act.because,
        tries=max(state.steps[act.step].tries, act.attempt),
        finished_at=at if finished else None,
    )
    closed = state.state in lifecycle.CLOSED_RESCUE
    if act.state == "failed" and not closed:
        state = replace(state, state="held", needs_human=True)
    if actions.ACTIONS[act.name].proves and (act.state == "done" or closed):
        state = replace(state, verified=act.state == "done")
    return state


def _second_round(state: RescueState, act: audit.StepStartedOver, at: datetime) -> RescueState:
    """Applies the plan of the second round; the rest of the first round is cancelled."""
    steps = {}
    for index, planned in enumerate(act.steps):
        step = state.steps.get(index) or StepState(name=planned.name, args=planned.args)
        cancelled = index in state.steps and index >= act.step
        steps[index] = replace(step, state="cancelled", finished_at=at) if cancelled else step
    return replace(state, steps=steps, plan_hash=act.plan_hash, verified=False)


def _with_step(rescue: RescueState, index: int, **changes: Any) -> RescueState:
    return replace(rescue, steps={**rescue.steps, index: replace(rescue.steps[index], **changes)})
