"""The history of a node as a strip of days: marks with texts and addresses, and the same as rows of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from kcover.nodes import node_history
from kcover.nodes.node_history import DAY, DAYS, Happening, Kind, Mark, Out
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.fault_names import fault_name
from kcover_portal.fleet.models import Node
from kcover_portal.lib import localization
from kcover_portal.shared_reads import node_history as histories
from kcover_portal.shared_reads.node_history import History, Lane

KINDS: Final = {  # a shape and a tone each: colour is never the only difference
    Kind.FAULT: Badge(gettext_lazy("Faults"), "bad", "alert-circle"),
    Kind.PORTAL: Badge(gettext_lazy("Rescues"), "heal", "heart-rate-monitor"),
    Kind.PERSON: Badge(gettext_lazy("People and programs"), "off", "user"),
    Kind.PROOF: Badge(gettext_lazy("Proof of health"), "ok", "shield-check"),
    Kind.REPAIR: Badge(gettext_lazy("Repairs"), "hold", "tool"),
}
FAILED: Final = Badge(gettext_lazy("Proof failed"), "bad", "circle-x")
OUT: Final[dict[Out, str | Promise]] = {
    Out.FAULT: gettext_lazy("A fatal fault was open"),
    Out.ISOLATED: gettext_lazy("Isolated by the portal"),
    Out.REPAIR: gettext_lazy("In repair"),
    Out.OTHERS: gettext_lazy("Cordoned by others"),
}
# The lists to which marks of several happenings lead; the others lead to the newest record.
LISTS: Final = {Kind.FAULT: "incidents", Kind.PORTAL: "rescues", Kind.PERSON: "audit"}
AXIS: Final = 5  # days between two dates below the strip


@dataclass(frozen=True, slots=True)
class Cell:
    """A mark. ``day``: 1 to DAYS. ``page`` "": nothing that the reader may open."""

    day: int
    look: Badge
    text: str
    page: str
    count: int
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class Bar:
    """A time out of service, in per cent of the strip."""

    why: Out
    left: float
    width: float
    text: str
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Row:
    """A lane with its marks, one list for each kind that has some."""

    name: str
    kinds: Sequence[tuple[Badge, Sequence[Cell]]]
    bars: Sequence[Bar]

    @property
    def cells(self) -> list[Cell]:
        """All marks, newest first."""
        found = [cell for _look, cells in self.kinds for cell in cells]
        return sorted(found, key=lambda cell: cell.newest_at, reverse=True)


@dataclass(frozen=True, slots=True)
class Strip:
    """The strip. ``axis``: days of the columns that have a date, and the dates."""

    rows: Sequence[Row]
    axis: Sequence[tuple[int, datetime]]
    complete: bool

    @property
    def is_empty(self) -> bool:
        return not any(row.kinds or row.bars for row in self.rows)

    @property
    def legend(self) -> list[Badge]:
        return [*KINDS.values(), FAILED]

    @property
    def reasons_out(self) -> list[tuple[Out, str | Promise]]:
        return list(OUT.items())


def of(node: Node, *, sees_cluster: bool, now: datetime) -> Strip:
    """The last days of a node. ``sees_cluster``: validations belong to whole clusters."""
    history = histories.of(node, now=now)
    axis = [(day + 1, history.since + day * DAY) for day in range(0, DAYS, AXIS)]
    rows = [_row(node, lane, history, sees_cluster) for lane in history.lanes]
    return Strip(rows, axis, history.complete)


def _row(node: Node, lane: Lane, history: History, sees_cluster: bool) -> Row:
    name = _("Node") if lane.gpu is None else f"GPU {lane.gpu.index}"
    kinds = [
        (KINDS[kind], [_cell(node, name, mark, history, sees_cluster) for mark in marks]) for kind, marks in lane.kinds
    ]
    return Row(name, kinds, [_bar(one, history) for one in lane.spans])


def _cell(node: Node, lane: str, mark: Mark, history: History, sees_cluster: bool) -> Cell:
    texts = list(dict.fromkeys(map(_text, mark.named)))
    if mark.count > len(mark.named):
        rest = mark.count - len(mark.named)
        texts.append(ngettext("and %(n)d more", "and %(n)d more", rest) % {"n": rest})
    look = FAILED if mark.kind is Kind.PROOF and mark.bad else KINDS[mark.kind]
    text = f"{lane} · {look.label}: {'; '.join(texts)}"
    return Cell(mark.day + 1, look, text, _page(node, mark, history, sees_cluster), mark.count, mark.named[0].at)


def _text(one: Happening) -> str:
    """What happened, in a few words."""
    if one.kind is Kind.FAULT:
        kind, _space, code = one.code.partition(" ")
        return fault_name(kind, code)
    if one.kind is Kind.PERSON:
        title = localization.say(one.title) if one.title is not None else one.code
        return f"{title} ({one.by})"
    if one.about == "validation":
        label = presentation.of("validation", one.state).label
        return _("Validation %(profile)s: %(state)s") % {"profile": one.code, "state": label}
    if one.about == "repair":
        label = presentation.of("repair", one.state).label
        return _("Repair %(number)d: %(state)s") % {"number": one.id, "state": label}
    if one.kind is Kind.PROOF:
        label = presentation.of("verified", "no" if one.bad else "yes").label
    else:
        label = presentation.OUTCOMES.get(one.state) or presentation.of("rescue", one.state).label
    return _("Rescue %(number)d: %(state)s") % {"number": one.id, "state": label}


def _page(node: Node, mark: Mark, history: History, sees_cluster: bool) -> str:
    """The record of a single happening; of several the list of the day, or the newest record."""
    newest = mark.named[0]
    if mark.kind in LISTS and (mark.count > 1 or newest.about == "entry"):
        if newest.about == "entry" and mark.count == 1 and newest.rescue:
            return reverse("console:rescue", args=(newest.rescue,))
        since = history.since + mark.day * DAY
        period = {"since": since.isoformat(), "until": (since + DAY).isoformat()}
        query = urlencode({"cluster": node.cluster.name, "node": node.name, **period})
        return f"{reverse(f'console:{LISTS[mark.kind]}')}?{query}"
    if newest.about == "validation" and not sees_cluster:
        return ""
    return reverse(f"console:{newest.about}", args=(newest.id,))


def _bar(one: node_history.Span, history: History) -> Bar:
    left, width = one.share(since=history.since, until=history.until)
    return Bar(one.why, round(left, 2), round(max(width, 0.2), 2), str(OUT[one.why]), one.since, one.until)
