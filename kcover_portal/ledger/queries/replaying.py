"""What the ledger alone says about a rescue: its entries, played from the first to the last (invariant 46).

A worker's pauses are no acts: ``waiting`` and ``running`` are one state here, and a step that has not ended is
``pending``, however often it was tried.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from kcover import lifecycle
from kcover_portal.ledger.models import Entry

PAUSES = {"waiting": "running"}  # a rescue's states that the ledger does not tell apart
UNFINISHED = ("pending", "running", "waiting")  # a step's, likewise
# Entries of the first releases did not say which state they left the step in.
LEFT_IN = {
    "step.done": "done",
    "step.again": "waiting",
    "step.hold": "failed",
    "step.failed": "failed",
    "step.overruled": "cancelled",
}
# Acts of a rescue that leave its state as it is: a vote is followed by what it came to, a callback by its step's end.
NO_MOVE = ("rescue.rejected", "rescue.link_made", "rescue.called_back")
ENDS = frozenset(f"rescue.{state}" for state in lifecycle.CLOSED_RESCUE)
STEERED = ("step.retry", "step.skip")
SETTLED = frozenset(LEFT_IN) | {"step.startover", "step.replaced"}
KNOWN = frozenset(("rescue.opened", "rescue.approved", "rescue.held", *NO_MOVE, *ENDS, *STEERED, *SETTLED))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """One step as the entries leave it. ``tries``: the highest attempt that an entry speaks of."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    state: str = "pending"
    because: str = ""
    tries: int = 0
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueState:
    """A rescue as the entries leave it; ``steps`` by their place in the plan."""

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
    """The rescue's state from its entries. Raises LookupError where the ledger does not know when it was opened, or has
    an act of a rescue that is not known here: a state that is guessed is none."""
    state: RescueState | None = None
    entries = Entry.objects.filter(cluster=cluster, rescue=rescue).order_by("sequence")
    for entry in entries.iterator(chunk_size=1000):
        if entry.verb == "rescue.opened":
            state = _opened(entry, rescue=rescue)
        elif state is not None:
            state = replace(_after(state, entry), entries=state.entries + 1)
    if state is None:
        raise LookupError(f"the ledger of {cluster!r} has no rescue {rescue}")
    return state


def _opened(entry: Entry, *, rescue: int) -> RescueState:
    planned = enumerate(entry.data["steps"])
    state = entry.data["state"]
    return RescueState(
        rescue=rescue,
        node=entry.node,
        requested_by=entry.actor,
        plan_hash=entry.data["plan_hash"],
        state=state,
        opened_at=entry.at,
        steps={index: StepState(name=step["name"], args=step["args"]) for index, step in planned},
        needs_human=state == "held",
        entries=1,
    )


def _after(state: RescueState, entry: Entry) -> RescueState:
    """One entry further. What is no act of a rescue or a step is a call: it tells of the node, not of the plan."""
    thing, _, act = entry.verb.partition(".")
    if thing in ("rescue", "step") and entry.verb not in KNOWN:
        raise LookupError(f"the ledger has an entry {entry.verb} of rescue {state.rescue}, which is not known here")
    if entry.verb in ENDS:
        return _ended(state, entry, act)
    if entry.verb == "rescue.approved":
        granted = entry.data.get("granted", True)  # one yes of several; the first releases did not say
        return replace(state, state="running", needs_human=False) if granted else state
    if entry.verb == "rescue.held":
        return replace(state, state="held", needs_human=True)
    if entry.verb in STEERED:
        index = _held_at(state, entry.data["step"])
        skipped = act == "skip"
        state = _with_step(
            state, index, state="skipped" if skipped else "pending", finished_at=entry.at if skipped else None
        )
        return replace(state, state="running", needs_human=False)
    if thing == "step":
        return _step(state, entry)
    return state


def _ended(state: RescueState, entry: Entry, how: str) -> RescueState:
    """Closing a rescue cancels every step that was still to come."""
    steps = {
        index: replace(step, state="cancelled", finished_at=entry.at) if step.state == "pending" else step
        for index, step in state.steps.items()
    }
    data = entry.data
    return replace(
        state, state=how, outcome=data["outcome"], needs_human=data["needs_human"], steps=steps, closed_at=entry.at
    )


def _step(state: RescueState, entry: Entry) -> RescueState:
    """A step's own entry; a step that failed while the rescue stayed open holds it."""
    index = int(entry.subject.split()[1])
    now = entry.data.get("state") or LEFT_IN[entry.verb]
    finished = now not in UNFINISHED
    state = _with_step(
        state,
        index,
        state=now if finished else "pending",
        because=entry.data["because"],
        tries=max(state.steps[index].tries, entry.data["attempt"]),
        finished_at=entry.at if finished else None,
    )
    if entry.verb == "step.startover" and "steps" in entry.data:
        return _second_round(state, entry, index)
    closed = state.state in lifecycle.CLOSED_RESCUE
    if now == "failed" and not closed:
        state = replace(state, state="held", needs_human=True)
    if state.steps[index].name == "verify" and (now == "done" or closed):
        state = replace(state, verified=now == "done")
    return state


def _second_round(state: RescueState, entry: Entry, index: int) -> RescueState:
    """The plan as it is from now on: what was still to come of the first round is not done any more."""
    steps = {}
    for place, planned in enumerate(entry.data["steps"]):
        step = state.steps.get(place) or StepState(name=planned["name"], args=planned["args"])
        given_up = place in state.steps and place >= index
        steps[place] = replace(step, state="cancelled", finished_at=entry.at) if given_up else step
    return replace(state, steps=steps, plan_hash=entry.data["plan_hash"], verified=False)


def _held_at(state: RescueState, name: str) -> int:
    return next(index for index, step in state.steps.items() if step.name == name and step.state == "failed")


def _with_step(before: RescueState, index: int, **changes: Any) -> RescueState:
    return replace(before, steps={**before.steps, index: replace(before.steps[index], **changes)})
