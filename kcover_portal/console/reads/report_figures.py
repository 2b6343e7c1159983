"""The headline figures of a report, each beside the one of the period before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy

from kcover.reports.intervals import Share
from kcover.reports.records import HOUR
from kcover.reports.report import Figures, Report
from kcover.reports.sums import Sum
from kcover.reports.survival import Times
from kcover_portal.console.reads.report_words import count, duration, percent

Read = Callable[[Figures], Any]
MEANINGS: Final[Mapping[str, Promise]] = {
    "faults": gettext_lazy("Incidents of nodes with GPUs that were opened in the period."),
    "detection": gettext_lazy("From the line in the node's log, by the node's clock, to the incident."),
    "recovery": gettext_lazy(
        "From the opening of an incident to its closing. What has not recovered lasts at least until the end "
        "of the period, so it makes these times longer."
    ),
    "between": gettext_lazy(
        "GPUs times the hours in which the cluster listed them, divided by faults. The range is Byar's 95 % interval."
    ),
    "success": gettext_lazy(
        "Of the automatic rescues that succeeded or failed, those that succeeded and left the node in service. "
        "Cancelled ones do not count."
    ),
    "automation": gettext_lazy(
        "Of all rescues that left the node in service, those that nobody opened, approved, retried or skipped by hand."
    ),
    "false": gettext_lazy(
        "Of the automatic isolations, those without a repair of any kind and without a fault of the node "
        "in the 24 hours after them."
    ),
    "again": gettext_lazy(
        "Of the reboots and power cycles, those that followed another one of the same node within 24 hours."
    ),
    "lost": gettext_lazy(
        "Hours of GPUs on nodes that the portal isolates, and of GPUs with an open fatal or critical fault."
    ),
    "cost": gettext_lazy(
        "Lost GPU hours times the price of the cluster. Without a price of each cluster there is no cost."
    ),
    "approval": gettext_lazy("From the request for an approval, or the opening of the rescue, to the approval."),
    "restart": gettext_lazy("From the order to restart a training job until it was done."),
}


@dataclass(frozen=True, slots=True)
class Tile:
    """A headline figure. ``change``: in per cent, None if it cannot be said; ``better``: whether it is one for the
    better, None if neither.
    """

    name: str
    label: str
    value: str
    more: str
    before: str
    change: int | None
    better: bool | None

    @property
    def meaning(self) -> Promise:
        """How the figure is counted."""
        return MEANINGS[self.name]


def tiles(report: Report) -> list[Tile]:
    """The headline figures of the report, each beside the one of the period before.

    Sums are compared per GPU hour, because the fleet may have grown or the portal may be new.
    """
    now, before = report.now, report.before

    def counted(
        name: str, label: str, read: Read, *, more: str = "", per_gpu: bool = True, rises: bool = False
    ) -> Tile:
        share = now.total.exposure / before.total.exposure if per_gpu and before.total.exposure else 1.0
        return _tile(name, label, (read(now), read(before)), count, more=more, rises=rises, scale=share)

    def timed(name: str, label: str, read: Callable[[Figures], Times], *, more: str = "") -> Tile:
        found = read(now)
        return _tile(name, label, (found.median, read(before).median), duration, more=more or _p90(found))

    def shared(name: str, label: str, read: Callable[[Figures], Share], *, rises: bool = True) -> Tile:
        values = (read(now).value, read(before).value)
        return _tile(name, label, values, percent, more=_interval(read(now)), rises=rises)

    return [
        counted("faults", _("Faults"), lambda of: of.total.faults, more=_rate(now.total)),
        timed("detection", _("Time to detection"), lambda of: of.detection),
        timed("recovery", _("Time to recovery"), lambda of: of.total.recovery, more=_recovered(now)),
        counted(
            "between",
            _("GPU hours between faults"),
            lambda of: of.total.between_faults.value,
            more=_between(now.total),
            per_gpu=False,
            rises=True,
        ),
        shared("success", _("Success of rescues"), lambda of: of.total.success),
        shared("automation", _("Healed without an operator"), lambda of: of.automation),
        shared("false", _("False isolations"), lambda of: of.false_isolations, rises=False),
        shared("again", _("Second reboots"), lambda of: of.second_reboots, rises=False),
        counted("lost", _("GPU hours lost"), lambda of: of.total.gpu_time / HOUR, more=_available(now)),
        counted("cost", _("Cost of lost GPU hours"), _cost),
        timed("approval", _("Wait for approval"), lambda of: of.approvals),
        timed("restart", _("Restart of jobs"), lambda of: of.restarts),
    ]


def _tile(
    name: str,
    label: str,
    values: tuple[Any, Any],
    say: Callable[[Any], str],
    *,
    more: str,
    rises: bool = False,
    scale: float = 1.0,
) -> Tile:
    """``values``: now and before. ``rises``: more is better. ``scale``: what ``before`` would be multiplied by if as
    many GPUs had been listed as now.
    """
    last, earlier = values
    change = round(last / (earlier * scale) * 100 - 100) if last is not None and earlier and scale else None
    better = None if not change else (change > 0) == rises
    return Tile(name, label, say(last), more, say(earlier), change, better)


def _interval(share: Share) -> str:
    more = _("%(part)s of %(whole)s") % {"part": share.part, "whole": share.whole}
    if share.low is None or share.high is None:
        return more
    return f"{more} ({percent(share.low)} – {percent(share.high)})"


def _cost(of: Figures) -> float | None:
    return None if of.total.cost is None else float(of.total.cost)


def _p90(found: Times) -> str:
    if not found.number:
        return ""
    if found.p90 is None:
        return _("%(number)s known") % {"number": found.number}
    return _("90 %% within %(time)s; %(number)s known") % {"time": duration(found.p90), "number": found.number}


def _recovered(of: Figures) -> str:
    found = of.total.recovery
    if found.median is None and found.ended:  # a dash alone would read as: nothing has recovered
        return _("%(ended)s of %(number)s recovered, too few for a median") % {
            "ended": found.ended,
            "number": found.number,
        }
    if found.p90 is None:
        return _("%(open)s not recovered") % {"open": found.open} if found.open else ""
    return _("90 %% within %(time)s; %(open)s not recovered") % {"time": duration(found.p90), "open": found.open}


def _between(total: Sum) -> str:
    found = total.between_faults
    return f"{count(found.low)} – {count(found.high)}"


def _rate(total: Sum) -> str:
    thousand = total.faults / (total.exposure / HOUR) * 1000 * 24 if total.exposure else None
    return _("%(rate)s a day per 1,000 GPUs") % {"rate": count(thousand)}


def _available(of: Figures) -> str:
    return _("availability %(share)s") % {"share": percent(of.availability, digits=2)}
