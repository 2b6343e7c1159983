"""Reports as rows of plain values, the same for REST and exports."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from kcover.reports.downtime import Phase
from kcover.reports.intervals import Share
from kcover.reports.lemons import Lemon
from kcover.reports.records import HOUR
from kcover.reports.report import Bucket, Figures
from kcover.reports.rescues import StepEnds
from kcover.reports.sums import MICROSECONDS_AN_HOUR, Sum
from kcover.reports.survival import Times
from kcover_portal.reports.lemon_repairs import Outlook

Row = dict[str, Any]
CENT: Final = Decimal("0.01")


def group(row: Sum) -> Row:
    between = row.between_faults
    return {
        "key": row.key,
        **_counts(row),
        **_share("success", row.success),
        "hours_between_faults": _rounded(between.value, 1),
        "hours_between_faults_low": _rounded(between.low, 1) if row.exposure else None,
        "hours_between_faults_high": _rounded(between.high, 1),
    }


def phase(row: Sum) -> Row:
    """The lost GPU time of one phase."""
    return {"key": row.key, "gpu_hours_lost": hours(row.gpu_time), "cost": _money(row.cost)}


def step(row: StepEnds) -> Row:
    """How one step ended."""
    return {"step": row.name, "done": row.done, "failed": row.failed, **_share("success", row.success)}


def bucket(row: Bucket) -> Row:
    """A part of the trend."""
    return {
        "from": row.since,
        "to": row.until,
        "faults": sum(row.faults.values()),
        "recovery_median_seconds": seconds(row.recovery.median),
        "gpu_hours_lost": _microseconds_as_hours(sum(row.lost.values())),
        **{f"gpu_hours_{phase}": _microseconds_as_hours(row.lost[phase]) for phase in Phase},
    }


def lemon(row: Lemon, outlook: Outlook) -> Row:
    """A node that fails repeatedly, with the chance of its next fault, the basis of the chance, and its repair."""
    return {
        "cluster": row.place.cluster,
        "node": row.place.name,
        "pool": row.place.pool,
        "faults_28d": row.faults,
        "faults_56d": row.faults_long,
        "causes": ", ".join(f"{cause} × {count}" for cause, count in row.causes),
        "last_fault_at": row.last_at,
        "gpu_hours_lost_56d": hours(row.gpu_time),
        "probability": round(row.risk.probability, 4),
        "probability_all": round(row.risk.base, 4),
        "window_days": row.risk.window_days,
        "basis": str(row.risk.because),
        "advice": str(row.advice),
        "repair": outlook.repair,
        "repair_due": outlook.due,
    }


def figures(of: Figures) -> Row:
    total = of.total
    return {
        "from": of.since,
        "to": of.until,
        **{name: value for name, value in group(total).items() if name != "key"},
        "gpus": round(total.exposure / (of.until - of.since), 1),
        "availability": _rounded(of.availability, 5),
        **_times("detection", of.detection),
        **_times("approval", of.approvals),
        **_times("job_restart", of.restarts),
        **_share("automation", of.automation),
        "false_isolations": of.false_isolations.part,
        "isolations": of.false_isolations.whole,
        **_share("false_isolation", of.false_isolations),
        "second_reboots": of.second_reboots.part,
        "reboots": of.second_reboots.whole,
        **_share("second_reboot", of.second_reboots),
    }


def hours(time: timedelta) -> float:
    """A time in hours, to the second."""
    return round(time / HOUR, 4)


def seconds(time: timedelta | None) -> float | None:
    return None if time is None else round(time.total_seconds(), 1)


def _counts(row: Sum) -> Mapping[str, Any]:
    return {
        "faults": row.faults,
        "recovered": row.recovered,
        "not_recovered": row.faults - row.recovered,
        "recovery_median_seconds": seconds(row.recovery.median),
        "recovery_p90_seconds": seconds(row.recovery.p90),
        "gpu_hours_lost": hours(row.gpu_time),
        "cost": _money(row.cost),
        "rescues": row.ended,
        "succeeded": row.succeeded,
    }


def _times(name: str, times: Times) -> Row:
    return {
        f"{name}_known": times.number,
        f"{name}_median_seconds": seconds(times.median),
        f"{name}_p90_seconds": seconds(times.p90),
    }


def _share(name: str, share: Share) -> Row:
    return {
        name: _rounded(share.value, 4),
        f"{name}_low": _rounded(share.low, 4),
        f"{name}_high": _rounded(share.high, 4),
    }


def _money(cost: Decimal | None) -> str | None:
    return None if cost is None else str(cost.quantize(CENT))


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _microseconds_as_hours(count: int) -> float:
    return round(count / MICROSECONDS_AN_HOUR, 4)
