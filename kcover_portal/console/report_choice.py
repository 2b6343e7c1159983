"""What the address of a report asks for: the period, the cluster and the groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import QueryDict
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext_lazy

from kcover.reports.records import By
from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError
from kcover_portal.reports import parameters as report_parameters, reliability

CUSTOM = "custom"
PERIODS = {
    "7d": (gettext_lazy("7 days"), timedelta(days=7)),
    "30d": (gettext_lazy("30 days"), timedelta(days=30)),
    "90d": (gettext_lazy("90 days"), timedelta(days=90)),
    "12m": (gettext_lazy("12 months"), timedelta(days=365)),
}
DEFAULT = "30d"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address asks for; ``error``: why it cannot be shown, and the default is shown instead."""

    name: str
    period: reliability.Period
    cluster: Cluster | None
    by: By
    error: str = ""


def read(parameters: QueryDict, scope: accounts.Scope, *, now: datetime) -> Asked:
    """Reads the parameters of an address. Raises Http404 for a cluster that the person does not see."""
    given = {name: parameters.get(name, "").replace("\0", "").strip()[:100] for name in parameters}
    cluster = get_object_or_404(scope.clusters(), name=given["cluster"]) if given.get("cluster") else None
    name = given.get("period") or (CUSTOM if given.get("from") or given.get("to") else DEFAULT)
    try:
        by = report_parameters.by(given.get("by", ""))
        return Asked(name, _period(name, given, now=now), cluster, by)
    except FieldError as error:
        last = reliability.Period(now - PERIODS[DEFAULT][1], now)
        return Asked(DEFAULT, last, cluster, By.CODE, localization.say(error.reason))


def _period(name: str, given: Mapping[str, str], *, now: datetime) -> reliability.Period:
    """Raises FieldError."""
    if name in PERIODS:
        return reliability.Period(now - PERIODS[name][1], now)
    since, until = (report_parameters.moment(field, given.get(field, "")) for field in ("from", "to"))
    return reliability.period(since, until, now=now)
