"""One rescue in words: the sentence that sums it up, and its steps as a timeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _

from kcover import lifecycle, reasons
from kcover_portal.console import looks, wording
from kcover_portal.console.reads import facts
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Rescue, Step

NO_CALLS = ("step", "rescue")  # ledger entries about the rescue itself, not about the cluster
HELD_BACK, STARTS_OVER = "held back: ", "starts over: "  # how the engine's sentences about these begin
POLLED = timedelta(seconds=5)  # waits shorter than this are the engine's own looking, no countdown for people


@dataclass(frozen=True, slots=True)
class StepView:
    """A step with what its row shows. ``left`` and ``width`` place its bar in the rescue's span, in per cent."""

    step: Step
    number: int
    title: str | Promise
    facts: Sequence[tuple[str, Any]]
    calls: Sequence["Call"]
    seconds: float | None
    left: float
    width: float
    current: bool
    gate: bool  # it waits, or waited, for a person's yes
    round: int  # 2 where the rescue starts over with this step, 0 where no round begins


@dataclass(frozen=True, slots=True)
class Call:
    """A cluster call as the ledger has it: what was asked, and the answer if there is one yet."""

    entry: Entry
    verb: str
    outcome: str  # done, refused (by a budget), failed, or begun when no answer was noted
    answer: str
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A guard that somebody passed over, and what it had said."""

    guard: looks.Verb
    who: str
    why: str
    at: datetime


def number_of(steps: Sequence[Step]) -> tuple[int, int]:
    """(finished steps, all steps), for a progress bar."""
    return sum(step.state in lifecycle.FINISHED_STEP for step in steps), len(steps)


def current(steps: Sequence[Step]) -> Step | None:
    """The first step that is not finished."""
    return next((step for step in steps if step.state not in lifecycle.FINISHED_STEP), None)


def title(step: Step) -> str | Promise:
    """What people call the step."""
    return looks.STEP_TITLES.get(step.name, step.name)


def awaits_approval(rescue: Rescue) -> bool:
    """Whether the rescue waits for a person's yes."""
    return rescue.state == Rescue.State.HELD and rescue.hold == Rescue.Hold.APPROVAL


def shown_state(rescue: Rescue) -> str:
    """The state under which people look for it: one that is held says for whom."""
    if awaits_approval(rescue):
        return "approval"
    return "people" if rescue.state == Rescue.State.HELD and rescue.needs_human else rescue.state


def offered(rescue: Rescue, steps: Sequence[Step]) -> list[str]:
    """What a person could do about the rescue as it stands; the service has the last word."""
    if rescue.state not in lifecycle.OPEN_RESCUE:
        return []
    if awaits_approval(rescue):
        return ["approve", "reject"]
    step = current(steps)
    stuck = step is not None and rescue.state == Rescue.State.HELD and step.state == "failed"
    return [*(["retry", "skip"] if stuck else []), "cancel"]


def summary(rescue: Rescue, steps: Sequence[Step]) -> str:
    """The sentence on top of the page: why, what, how far, and whether it helped."""
    names = {"node": rescue.node.name, "trigger": _trigger(rescue), "plan": _plan(steps)}
    step = current(steps)
    if awaits_approval(rescue):
        return _("%(trigger)s. A person must say yes before the portal may %(plan)s on %(node)s.") % names
    if rescue.state == Rescue.State.HELD:
        return (
            _("%(trigger)s. The rescue of %(node)s is held and does nothing until somebody or something decides.")
            % names
        )
    if rescue.state in lifecycle.OPEN_RESCUE and step is not None:
        done, total = number_of(steps)
        names |= {"step": str(title(step)), "number": str(min(done + 1, total)), "total": str(total)}
        return _("%(trigger)s. %(node)s is being rescued: step %(number)s of %(total)s, %(step)s.") % names
    return _ended(rescue, names)


def _ended(rescue: Rescue, names: dict[str, str]) -> str:
    names["took"] = facts.duration(rescue.closed_at - rescue.opened_at) if rescue.closed_at else ""
    if rescue.state == Rescue.State.CANCELLED:
        return _("%(trigger)s. The rescue of %(node)s was cancelled after %(took)s.") % names
    if rescue.state == Rescue.State.FAILED:
        return _("%(trigger)s. The rescue of %(node)s failed after %(took)s; the node stays isolated.") % names
    if rescue.verified:
        return _("%(trigger)s. %(node)s was rescued in %(took)s and is verified healthy.") % names
    return _("%(trigger)s. On %(node)s the portal did %(plan)s in %(took)s; the node was not verified.") % names


def _trigger(rescue: Rescue) -> str:
    if rescue.origin == Rescue.Origin.POLICY:
        return _("%(code)s was reported and rule %(rule)s matched") % {
            "code": rescue.code.capitalize(),
            "rule": rescue.rule,
        }
    return _("%(who)s asked for it") % {"who": rescue.requested_by}


def _plan(steps: Sequence[Step]) -> str:
    return _(", ").join(str(title(step)).lower() for step in steps)


def timeline(rescue: Rescue, steps: Sequence[Step], entries: Sequence[Entry], *, now: datetime) -> list[StepView]:
    """The steps in order with their bars, facts and the calls they made."""
    end = rescue.closed_at or now
    span = max((end - rescue.opened_at).total_seconds(), 1.0)
    present = current(steps)
    calls = calls_of(entries)
    begun = rounds(steps)
    views = []
    for number, step in enumerate(steps, start=1):
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
                facts=facts.of(step),
                calls=[call for call in calls if call.entry.data.get("step") == step.name],
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
    """Where a rescue starts over: the index of each such step, and which round begins there."""
    starts = [
        after.index
        for before, after in pairwise(steps)
        if before.because.startswith(STARTS_OVER) and not after.because.startswith(STARTS_OVER)
    ]
    return {index: number for number, index in enumerate(starts, start=2)}


def held_back(rescue: Rescue) -> str:
    """What holds a rescue back that is under way, "" where nothing does; ``due_at`` is when it is asked again."""
    waits = rescue.state == Rescue.State.WAITING and rescue.because.startswith(HELD_BACK)
    return rescue.because.removeprefix(HELD_BACK) if waits else ""


def passed_over(rescue: Rescue) -> list[PassedOver]:
    """The guards that held something back and that somebody passed over."""
    return [
        PassedOver(
            guard=looks.GUARDS.get(row["guard"]) or looks.Verb(row["guard"], "shield"),
            who=row["by"],
            why=wording.say(reasons.from_json(row["why"])),
            at=datetime.fromisoformat(row["at"]),
        )
        for row in rescue.passed_over
    ]


def calls_of(entries: Sequence[Entry]) -> list[Call]:
    """Ledger entries (oldest first) as calls: a ``begun`` is joined with the ``done`` or ``failed`` that follows it."""
    calls: list[Call] = []
    open_: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        verb, _dot, phase = entry.verb.rpartition(".")
        if verb in NO_CALLS:
            continue
        if phase == "begun":
            open_[verb, entry.subject] = entry
        elif phase in ("done", "failed"):
            begun = open_.pop((verb, entry.subject), entry)
            refused = phase == "done" and str(entry.data.get("answer", "")).startswith("Blocked(")
            phase = "refused" if refused else phase
            calls.append(Call(begun, verb, phase, answer_of(entry), max(0.0, (entry.at - begun.at).total_seconds())))
    calls += [Call(entry, verb, "begun", "", None) for (verb, _subject), entry in open_.items()]
    return sorted(calls, key=lambda call: call.entry.pk)


def answer_of(entry: Entry) -> str:
    """What the cluster answered, short: the error, the answer, or what changed."""
    data = entry.data
    if "error" in data:
        return str(data["error"])
    if "answer" in data:
        return _known_answer(str(data["answer"]))
    before, after = data.get("before"), data.get("after")
    if isinstance(before, dict) and isinstance(after, dict):
        changed = [f"{key}: {before.get(key)} → {after[key]}" for key in after if before.get(key) != after[key]]
        return "; ".join(changed) or _("already so, nothing was written")
    return ""


def _known_answer(text: str) -> str:
    """An eviction's answer in words; any other as it was noted."""
    for name, words in (
        ("Evicted(", _("evicted")),
        ("Gone(", _("it was gone already")),
        ("Blocked(", _("refused: a disruption budget is in the way")),
    ):
        if text.startswith(name):
            return words
    return text


def countdown(rescue: Rescue, *, now: datetime) -> datetime | None:
    """When the portal goes on by itself, if that is far enough away for people to care."""
    if rescue.state != Rescue.State.WAITING or rescue.due_at is None or rescue.due_at - now < POLLED:
        return None
    return rescue.due_at
