"""One rescue in words: a sentence that summarises it, and its steps as a timeline."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy

from kcover import audit, reasons
from kcover.plans import lifecycle, plan
from kcover_portal.console import action_labels, presentation
from kcover_portal.console.fault_names import of_rescue
from kcover_portal.console.reads import step_facts
from kcover_portal.ledger.models import Entry
from kcover_portal.lib import actor_names, localization
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import needs_person

PARTS_OF_NODE: Final = {  # the fields of ``audit.NodeShape``
    "unschedulable": gettext_lazy("unschedulable"),
    "taints": gettext_lazy("taints"),
    "state": gettext_lazy("state label"),
    "labels": gettext_lazy("labels"),
    "boot_id": gettext_lazy("boot ID"),
}
MANUAL_VERBS: Final = ("cordon", "uncordon", "drain", "reboot", "offline", "release")
MIN_COUNTDOWN = timedelta(seconds=5)  # shorter waits are the engine's own polling and get no countdown


@dataclass(frozen=True, slots=True)
class StepView:
    """A step with what its row shows. ``left`` and ``width`` place its bar in the rescue's span, in per cent."""

    step: Step
    number: int
    title: str | Promise
    facts: Sequence[tuple[str, Any]]
    calls: Sequence["RecordedCall"]
    seconds: float | None
    left: float
    width: float
    current: bool
    gate: bool  # it waits, or waited, for an approval
    round: int  # 2 if the rescue starts over with this step, 0 if no round begins here


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A cluster call from the audit log, with its answer if there is one."""

    entry: Entry
    call: audit.Call
    step: int | None
    outcome: str  # done, refused (by a budget), failed, or begun if no answer was recorded
    answer: str
    seconds: float | None

    @property
    def title(self) -> str:
        """What was called, in words."""
        return localization.say(reasons.of(f"audit.call.{self.call.value}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A guard that someone overrode, and its reason."""

    guard: action_labels.ActionLabel
    who: str
    why: str
    at: datetime


def number_of(steps: Sequence[Step]) -> tuple[int, int]:
    """(finished steps, all steps), for a progress bar.

    Cancelled steps count only if a later round took their place: a denied plan is not done.
    """
    begun = [place for place, step in enumerate(steps) if step.state != Step.State.CANCELLED]
    reached = begun[-1] + 1 if begun else 0
    return sum(step.state in lifecycle.FINISHED_STEP for step in steps[:reached]), len(steps)


def current(steps: Sequence[Step]) -> Step | None:
    return next((step for step in steps if step.state not in lifecycle.FINISHED_STEP), None)


def title(step: Step) -> str:
    return presentation.step_title(step.name)


def asked_for(steps: Sequence[Step]) -> str:
    """What a person asked for by this plan: Cordon, Reboot; the titles of its steps if no button makes it."""
    names = tuple(step.name for step in steps)
    for verb in MANUAL_VERBS:
        if names == tuple(step.name for step in plan.manual(verb)):
            return str(action_labels.verb(verb).label)
    return _plan(steps)


def awaits_approval(rescue: Rescue) -> bool:
    return needs_person.kind_of(rescue) == "approval"


def offered(rescue: Rescue, steps: Sequence[Step]) -> list[str]:
    """The actions that the current state allows; the service decides."""
    if rescue.state not in lifecycle.OPEN_RESCUE:
        return []
    if awaits_approval(rescue):
        return ["approve", "reject"]
    step = current(steps)
    stuck = step is not None and rescue.state == Rescue.State.HELD and step.state == "failed"
    return [*(["retry", "skip"] if stuck else []), "cancel"]


def summary(rescue: Rescue, steps: Sequence[Step]) -> str:
    """The sentence at the top of the page: why, what, how far, and whether it helped."""
    names = {"node": rescue.node.name, "trigger": _trigger(rescue), "plan": _plan(steps)}
    step = current(steps)
    if awaits_approval(rescue):
        return _("%(trigger)s. Approval required for %(node)s: %(plan)s.") % names
    if rescue.state == Rescue.State.HELD:
        return _("%(trigger)s. The rescue of %(node)s is on hold.") % names
    if rescue.state in lifecycle.OPEN_RESCUE and step is not None:
        done, total = number_of(steps)
        names |= {"step": str(title(step)), "number": str(min(done + 1, total)), "total": str(total)}
        return _("%(trigger)s. Rescuing %(node)s: step %(number)s of %(total)s, %(step)s.") % names
    return _ended(rescue, names)


def _ended(rescue: Rescue, names: dict[str, str]) -> str:
    names["took"] = step_facts.duration(rescue.closed_at - rescue.opened_at) if rescue.closed_at else ""
    if rescue.state == Rescue.State.CANCELLED:
        return _("%(trigger)s. Rescue of %(node)s cancelled after %(took)s.") % names
    if rescue.state == Rescue.State.FAILED:
        return _("%(trigger)s. Rescue failed after %(took)s. %(node)s stays isolated.") % names
    if rescue.verified:
        return _("%(trigger)s. %(node)s was rescued in %(took)s and verified healthy.") % names
    return _("%(trigger)s. Done on %(node)s in %(took)s: %(plan)s. Not verified.") % names


def _trigger(rescue: Rescue) -> str:
    if rescue.origin == Rescue.Origin.POLICY:
        return _("%(code)s matched rule %(rule)s") % {
            "code": of_rescue(rescue),
            "rule": rescue.rule,
        }
    return _("Requested by %(who)s") % {"who": actor_names.name(rescue.requested_by)}


def _plan(steps: Sequence[Step]) -> str:
    return _(", ").join(str(title(step)) for step in steps)


def timeline(rescue: Rescue, steps: Sequence[Step], entries: Sequence[Entry], *, now: datetime) -> list[StepView]:
    """The steps in order with their bars, facts and the calls they made."""
    end = rescue.closed_at or now
    span = max((end - rescue.opened_at).total_seconds(), 1.0)
    present = current(steps)
    calls = calls_of(entries)
    begun = rounds(steps)
    views = []
    for number, step in enumerate(steps, start=1):
        own = [call for call in calls if call.step == step.index]
        seconds = left = width = None
        if step.started_at:
            seconds = max(0.0, ((step.finished_at or end) - step.started_at).total_seconds())
            left = min(98.0, max(0.0, (step.started_at - rescue.opened_at).total_seconds() / span * 100))
            width = min(100 - left, max(1.5, seconds / span * 100))
        views.append(
            StepView(
                step=step,
                number=number,
                title=title(step),
                facts=[*step_facts.of(step), *step_facts.looks(step, calls=len(own))],
                calls=own,
                seconds=seconds,
                left=round(left or 0, 1),
                width=round(width or 0, 1),
                current=step is present and rescue.state in lifecycle.OPEN_RESCUE,
                gate=step.index == rescue.gate,
                round=begun.get(step.index, 0),
            )
        )
    return views


def rounds(steps: Sequence[Step]) -> dict[int, int]:
    """The starts of later rounds: the index of their first step, and the number of the round."""
    return {after.index: after.round for before, after in pairwise(steps) if after.round > before.round}


def held_back(rescue: Rescue) -> str:
    """The reason that holds back a rescue under way; "" if nothing does. The guards are evaluated again at
    ``due_at``.
    """
    return localization.stored(rescue.because) if is_held_back(rescue) else ""


def is_held_back(rescue: Rescue) -> bool:
    """Returns whether a guard, a pause or the mode holds back a rescue under way."""
    return rescue.state == Rescue.State.WAITING and rescue.hold == Rescue.Hold.GUARD


def passed_over(rescue: Rescue) -> list[PassedOver]:
    """The guards that someone overrode."""
    return [
        PassedOver(
            guard=presentation.GUARDS.get(row["guard"]) or action_labels.ActionLabel(row["guard"], "shield"),
            who=row["by"],
            why=localization.say(reasons.from_json(row["why"])),
            at=datetime.fromisoformat(row["at"]),
        )
        for row in rescue.passed_over
    ]


def calls_of(entries: Sequence[Entry]) -> list[RecordedCall]:
    """Ledger entries (oldest first) as calls: a ``begun`` is joined with the ``done`` or ``failed`` that follows it."""
    calls: list[RecordedCall] = []
    open_: dict[tuple[audit.Call, str], tuple[Entry, audit.ClusterCall]] = {}
    for entry in entries:
        act = audit.from_entry(entry)
        if not isinstance(act, audit.ClusterCall):
            continue
        if isinstance(act, audit.ClusterCallBegun):
            open_[act.call, act.target] = entry, act
            continue
        begun, _act = open_.pop((act.call, act.target), (entry, act))
        seconds = max(0.0, (entry.at - begun.at).total_seconds())
        calls.append(RecordedCall(begun, act.call, act.step, _outcome(act), answer_of(act), seconds))
    calls += [RecordedCall(entry, act.call, act.step, "begun", "", None) for entry, act in open_.values()]
    return sorted(calls, key=lambda call: call.entry.pk)


def _outcome(act: audit.ClusterCall) -> str:
    if isinstance(act, audit.ClusterCallDone):
        return "refused" if isinstance(act.answer, audit.EvictionBlocked) else "done"
    return "failed"


def answer_of(act: audit.ClusterCall) -> str:
    """The answer of the cluster in short: the error, the answer, or what changed."""
    if isinstance(act, audit.ClusterCallFailed):
        return localization.say(act.because)
    answer = act.answer if isinstance(act, audit.ClusterCallDone) else None
    if isinstance(answer, audit.NodePatched):
        return _changes(answer.before, answer.after)
    because = answer.sentence() if answer is not None else None
    return localization.say(because) if because is not None else ""


def _changes(before: audit.NodeShape, after: audit.NodeShape) -> str:
    old, new = asdict(before), asdict(after)
    changed = [f"{PARTS_OF_NODE[key]} {_shown(old[key])} → {_shown(new[key])}" for key in new if old[key] != new[key]]
    return _(", ").join(changed) or _("no change needed")


def _shown(value: object) -> str:
    """A part of a node in words; nothing is a dash."""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return (", ".join(map(str, value)) if isinstance(value, tuple) else str(value or "")) or "–"


def countdown(rescue: Rescue, *, now: datetime) -> datetime | None:
    """The time when the portal continues by itself, if that is more than MIN_COUNTDOWN away."""
    if rescue.state != Rescue.State.WAITING or rescue.due_at is None or rescue.due_at - now < MIN_COUNTDOWN:
        return None
    return rescue.due_at
