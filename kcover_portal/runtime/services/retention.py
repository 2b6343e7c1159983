"""How long the portal keeps its rows: the one table that every deletion of old rows reads.

Rows that are not here are kept, such as the audit log, incidents, rescues, decisions, policies, repairs and parts; or
they name the time of their own end, such as sessions. ``docs/operations/install/capacity.md`` has this table in words.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from django.conf import settings
from django.db.models import Model, QuerySet

BATCH: Final = 5_000  # rows in one statement: the locks of a deletion stay short
BY_SETTING: Final = None  # KCOVER_KEEP_DAYS

TIMES: Final[Mapping[str, timedelta | None]] = MappingProxyType(
    {
        "accounts.ApiToken": BY_SETTING,  # credentials of agents, after their end; the audit log keeps them
        "accounts.AttemptCounter": timedelta(hours=1),  # without an attempt
        "anchors.Verification": timedelta(days=1),  # after its end
        "api.Answered": timedelta(days=7),
        "checks.CheckRun": BY_SETTING,  # after its end
        "checks.Validation": BY_SETTING,  # after its end
        "checks.WatchedJob": BY_SETTING,  # after its end
        "evidence.Bundle": BY_SETTING,  # its content
        "fleet.CheckChange": BY_SETTING,
        "fleet.CheckResult": timedelta(days=7),  # after it stopped counting
        "fleet.ForeignCordon": timedelta(days=60),  # after its end
        "fleet.Node": timedelta(days=1),  # parked ones, after their last report
        "incidents.Batch": timedelta(days=7),  # longer than any agent's spool is old
        "incidents.JobSeen": timedelta(days=30),  # as long as a storm's window may be
        "incidents.Occurrence": BY_SETTING,  # after its incident was closed
        "jobs.JobOrder": BY_SETTING,  # after its end
        "jobs.JobPerformance": timedelta(days=7),  # after its job was last read
        "jobs.PodFailure": BY_SETTING,  # after it was over
        "needs.NeedAct": timedelta(days=30),  # a need that lasts longer forgets them
        "notify.Delivery": BY_SETTING,  # after its end
        "policies.PolicyTry": timedelta(days=1),  # after its end
        "preflight.PairPlan": BY_SETTING,  # after its end
        "preflight.PreflightRefusal": BY_SETTING,
        "preflight.PreflightRun": BY_SETTING,  # after its end
        "repairs.VendorDelivery": timedelta(days=30),
        "rescue.JobRestart": timedelta(days=30),
        "sources.TakenEvent": timedelta(days=7),
        "sources.ToldSeries": timedelta(days=14),  # longer than the repetition of an event is recognized
    }
)


def time(model: type[Model]) -> timedelta:
    """How long rows of the model are kept. Raises KeyError for those that are kept for good."""
    found = TIMES[model._meta.label]
    return timedelta(days=settings.KCOVER_KEEP_DAYS) if found is BY_SETTING else found


def before(model: type[Model], *, now: datetime) -> datetime:
    """Rows whose time began before this one are deleted. Raises KeyError for rows that are kept for good."""
    return now - time(model)


def delete(rows: QuerySet[Any], *, batch: int = BATCH) -> int:
    """Deletes the rows in batches, each in a transaction of its own. Returns the number, without dependent rows.

    ``batch``: fewer for rows on which many others depend.
    """
    model, removed = rows.model, 0
    rows = rows.order_by()
    while keys := list(rows.values_list("pk", flat=True)[:batch]):
        model._default_manager.filter(pk__in=keys).delete()
        removed += len(keys)
    return removed
