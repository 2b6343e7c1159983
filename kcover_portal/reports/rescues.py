"""Reads rescues, what they waited for, and the isolations of nodes that their steps began and ended."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Max, Q, QuerySet

from kcover import actions, reasons
from kcover.actions import quarantine_device
from kcover.reports import downtime
from kcover.reports.records import Isolation, Run, Span, Work
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Rescue, Step

STORM_WINDOW: Final = timedelta(minutes=5)
# Steps that take a node out of scheduling, and those that return it.
ISOLATING: Final = actions.names(lambda spec: spec.isolates and spec.place[0] is actions.Stage.KEEP_AWAY)
# Only one device was isolated: its open fault counts the lost GPU hours.
OF_A_PART: Final = Q(name=quarantine_device.SPEC.name, progress__isolated=quarantine_device.DEVICE)
RETURNING: Final = actions.names(lambda spec: spec.returns_node)
RELEASE: Final = "release"
STILL_CORDONED: Final = reasons.known("release_still_cordoned")  # a release that changed nothing
HOLDS: Final = ("rescue.held", "step.held", "guard.refused")
TOUCHES: Final = ("rescue.approved", "step.retried", "step.skipped")
MARKS_GONE: Final = "marks.gone"  # others removed what the portal did
MARKS_FOUND: Final = "marks.found"  # the portal learned late what it had done
COLUMNS: Final = (
    *("pk", "node_id", "fault_kind", "fault_code", "policy", "rule", "origin", "state", "outcome", "verified"),
    *("opened_at", "closed_at"),
)

Rows = Callable[..., QuerySet[Any]]  # ``Part.rows``
Event = tuple[datetime, int, bool]  # when, which rescue, and whether it began an isolation


def overlapping(rows: QuerySet[Rescue], *, since: datetime, until: datetime) -> QuerySet[Rescue]:
    """The rescues that were open at some time of the period, without those of drills."""
    rows = rows.exclude(incidents__drill=True).filter(opened_at__lt=until)
    return rows.filter(Q(closed_at=None) | Q(closed_at__gte=since))


def read(
    seen: Rows,
    rows: QuerySet[Rescue],
    *,
    gone: Mapping[int, datetime | None],
    since: datetime,
    until: datetime,
) -> tuple[dict[int, Work], list[Isolation]]:
    """The rescues by id, and the isolations of the period. ``gone``: when each node was removed."""
    before = _isolated_at(seen, since)
    known = Q(pk__in=rows.order_by().values("pk")) | Q(pk__in=[pk for _, pk in before.values()])
    chosen = Rescue.objects.filter(known)
    stories = _Stories(chosen)
    runs = _runs(chosen)
    works = {
        row[0]: _work(row, runs.get(row[0], ()), stories)
        for row in chosen.order_by("opened_at", "pk").values_list(*COLUMNS)
    }
    events: dict[int, list[Event]] = {node: [(at, pk, True)] for node, (at, pk) in before.items()}
    for at, rescue, name in _changes(chosen, since=since, until=until):
        events.setdefault(works[rescue].node, []).append((at, rescue, name in ISOLATING))
    for at, rescue, found_again in stories.marks:
        if since <= at < until:
            events.setdefault(works[rescue].node, []).append((at, rescue, found_again))
    isolations = [
        isolation
        for node, found in events.items()
        for isolation in downtime.isolations(
            [(at, works[pk], isolates) for at, pk, isolates in sorted(found)], gone=gone.get(node)
        )
    ]
    return works, isolations


def _changes(chosen: QuerySet[Rescue], *, since: datetime, until: datetime) -> list[tuple[datetime, int, str]]:
    """The finished steps that isolated or returned a node in the period."""
    rows = Step.objects.filter(rescue__in=chosen.order_by().values("pk"), finished_at__gte=since, finished_at__lt=until)
    found = changing(rows).order_by("finished_at", "pk").values_list("finished_at", "rescue_id", "name")
    return [(at, rescue, name) for at, rescue, name in found if at is not None]


def changing(rows: QuerySet[Step]) -> QuerySet[Step]:
    """Those of the steps that took a node out of scheduling or returned it."""
    released = Q(name=RELEASE) & ~Q(because__code__in=STILL_CORDONED)
    rows = rows.filter(Q(name__in=(ISOLATING | RETURNING) - {RELEASE}) | released, state=Step.State.DONE)
    return rows.exclude(OF_A_PART)


def _isolated_at(seen: Rows, moment: datetime) -> dict[int, tuple[datetime, int]]:
    """The nodes that were isolated at a time: since when, and by which rescue."""
    steps = seen(Step.objects.all(), "rescue__cluster", "rescue__node").filter(finished_at__lt=moment)
    steps = changing(steps.exclude(rescue__incidents__drill=True))
    last = (
        steps.order_by()
        .values("rescue__node")
        .annotate(
            isolated=Max("finished_at", filter=Q(name__in=ISOLATING)),
            returned=Max("finished_at", filter=Q(name__in=RETURNING)),
            rescue=Max("rescue_id", filter=Q(name__in=ISOLATING)),
        )
    )
    found = {
        node: (isolated, rescue)
        for node, isolated, returned, rescue in last.values_list("rescue__node", "isolated", "returned", "rescue")
        if isolated is not None and (returned is None or returned < isolated)
    }
    pks = [rescue for _, rescue in found.values()]
    lapsed = Entry.objects.filter(rescue__in=pks, verb=MARKS_GONE, at__lt=moment).values_list("rescue", flat=True)
    without = set(lapsed)
    return {node: one for node, one in found.items() if one[1] not in without}


def _runs(chosen: QuerySet[Rescue]) -> dict[int, list[Run]]:
    found: dict[int, list[Run]] = {}
    rows = Step.objects.filter(rescue__in=chosen.order_by().values("pk"), started_at__isnull=False)
    columns = ("rescue_id", "name", "state", "started_at", "finished_at")
    for rescue, name, state, started, finished in rows.order_by("started_at", "index").values_list(*columns):
        found.setdefault(rescue, []).append(Run(name, state, Span(started, finished)))
    return found


def _work(row: Sequence[Any], runs: Iterable[Run], stories: "_Stories") -> Work:
    pk, node, kind, code, policy, rule, origin, state, outcome, verified, opened, closed = row
    open_ = Span(opened, closed)
    return Work(
        pk=pk,
        node=node,
        cause=f"{kind} {code}".strip(),
        policy=policy,
        rule=rule,
        by_hand=origin == Rescue.Origin.MANUAL,
        open=open_,
        state=state,
        outcome=outcome,
        verified=verified,
        touched=pk in stories.touched,
        held=tuple(stories.held(pk, until=closed)),
        approvals=tuple(stories.approvals(pk, opened=opened)),
        runs=[_ended(run, by=closed) for run in runs],
    )


def _ended(run: Run, *, by: datetime | None) -> Run:
    """The run, which ends with its rescue at the latest."""
    if by is None or (run.time.until is not None and run.time.until <= by):
        return run
    return Run(run.name, run.state, Span(run.time.since, by))


class _Stories:
    """What the audit log says about rescues: holds, what people did, and marks that were removed by others."""

    def __init__(self, chosen: QuerySet[Rescue]) -> None:
        self.touched: set[int] = set()
        self.marks: list[Event] = []
        pks = chosen.order_by().values("pk")
        waited: set[int] = set()
        rows = Entry.objects.filter(rescue__in=pks, verb__in=(*HOLDS, *TOUCHES, MARKS_GONE, MARKS_FOUND))
        for rescue, verb, at in _of_rescues(rows.order_by()):
            if verb in (MARKS_GONE, MARKS_FOUND):
                self.marks.append((at, rescue, verb == MARKS_FOUND))
                continue
            if verb in TOUCHES:
                self.touched.add(rescue)
            waited.add(rescue)
        self._entries: dict[int, list[tuple[str, datetime]]] = {}
        every = Entry.objects.filter(rescue__in=sorted(waited)).order_by("rescue", "pk")
        for rescue, verb, at in _of_rescues(every):
            self._entries.setdefault(rescue, []).append((verb, at))

    def held(self, rescue: int, *, until: datetime | None) -> Iterable[Span]:
        """The times in which it waited for a person or a guard: from a hold to the next entry of another kind."""
        since: datetime | None = None
        for verb, at in self._entries.get(rescue, ()):
            if verb in HOLDS:
                since = since or at
            elif since is not None:
                yield Span(since, at)
                since = None
        if since is not None:
            yield Span(since, until)

    def approvals(self, rescue: int, *, opened: datetime) -> Iterable[timedelta]:
        """How long it waited for each approval: since it asked, or since it was opened."""
        asked = opened
        for verb, at in self._entries.get(rescue, ()):
            if verb == "rescue.held":
                asked = at
            elif verb == "rescue.approved":
                yield at - asked


def _of_rescues(entries: QuerySet[Entry]) -> Iterable[tuple[int, str, datetime]]:
    for rescue, verb, at in entries.values_list("rescue", "verb", "at"):
        if rescue is not None:
            yield rescue, verb, at
