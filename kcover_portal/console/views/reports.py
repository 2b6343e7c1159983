"""Reports: reliability of a period, nodes that fail repeatedly, exports, and the price of a GPU hour."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover.reports.lemons import Lemon
from kcover.reports.records import By
from kcover.reports.report import Report
from kcover.reports.sums import Sum
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import exports, form_dialog, report_choice, time_zones
from kcover_portal.console.access import Request, place, require, signed_in
from kcover_portal.console.forms.cluster_settings import LemonRepairs, Price
from kcover_portal.console.reads import report_charts, report_figures, report_links, report_words
from kcover_portal.console.views import export as export_view
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.reports import lemon_repairs, reliability, tables
from kcover_portal.runtime.services import concurrency_limits


@require_GET
@signed_in
def reports(request: Request) -> HttpResponse:
    """The report of a period, with the lemons of now."""
    now = timezone.now()
    scope = accounts.scope(request.user)
    zone = time_zones.of(request)
    with timezone.override(zone):
        asked = report_choice.read(request.GET, scope, now=now)
    with place(request, concurrency_limits.REPORTS):
        report = reliability.reliability(scope, asked.cluster, asked.by, asked.period)
        found = lemon_repairs.with_outlooks(reliability.nodes_that_fail(scope, asked.cluster, now=now))
    clusters = list(scope.clusters().order_by("name"))
    settable = set(accounts.clusters_of(request.user, Verb.GUARD).values_list("pk", flat=True))
    context = {
        "asked": asked,
        "zone": zone,
        "periods": {
            **{name: label for name, (label, _length) in report_choice.PERIODS.items()},
            report_choice.CUSTOM: _("Custom"),
        },
        "clusters": clusters,
        "groups": {str(by): label for by, label in report_words.GROUPS.items()},
        "group": report_words.GROUPS[asked.by],
        "report": report,
        "tiles": report_figures.tiles(report),
        "rows": [_group(asked, row) for row in report.rows],
        "phases": report_charts.bars(report.phases, By.PHASE),
        "losses": report_charts.bars(report.rows, asked.by) if asked.by is not By.PHASE else [],
        "times": report_charts.distribution(report.now.total.recovery),
        "steps": [(step, tables.step(step)) for step in report.steps],
        "charts": report_charts.charts(report),
        "lemons": found,
        "lemon_settings": _lemon_settings(clusters, found, settable),
        "prices": [(cluster, cluster.pk in settable) for cluster in clusters],
        "query": request.GET.urlencode(),
        "api_query": urlencode(_api_query(asked)),
    }
    return render(request, "console/pages/reports.html", context)


def _group(asked: report_choice.Asked, row: Sum) -> tuple[str, str, dict[str, Any], Sum]:
    """The name of a group, the address of what is behind it, and its figures."""
    return report_words.group_name(asked.by, row.key), report_links.of(asked, row.key), tables.group(row), row


@require_GET
@signed_in
def export(request: Request, table: str, shape: str) -> HttpResponseBase:
    """One table of the report as a file; 400 for a bad period, 429 while no place is free."""
    if table not in TABLES or shape not in exports.SHAPES:
        raise Http404
    now = timezone.now()
    scope = accounts.scope(request.user)
    with timezone.override(time_zones.of(request)):
        asked = report_choice.read(request.GET, scope, now=now)
    if asked.error:
        return HttpResponse(asked.error, status=400, content_type="text/plain; charset=utf-8")
    with place(request, concurrency_limits.REPORTS):
        rows = _rows(table, scope, asked, now=now)
    name = f"report-{table}"
    slot = export_view.begin(request, name, shape, query=request.GET.urlencode(), now=now)
    columns = list(rows[0]) if rows else []
    values = (tuple(row.values()) for row in rows)
    return exports.stream(name, columns, values, shape, today=now.date(), place=slot)


@require_http_methods(["GET", "POST"])
@signed_in
def price(request: Request, cluster: str) -> HttpResponse:
    """Set what an hour of one GPU costs."""
    row = _settable(request, cluster)
    return _set(
        request,
        Price(request.POST or None, cluster=row),
        row,
        "gpu_hour_price",
        address=reverse("console:report-price", args=(row.name,)),
        title=_("Price of a GPU hour in %(cluster)s") % {"cluster": row.name},
        text=_("Reports multiply lost GPU hours by it, also those of the past."),
    )


@require_http_methods(["GET", "POST"])
@signed_in
def lemons(request: Request, cluster: str) -> HttpResponse:
    """Set whether the portal reports repairs of nodes that fail repeatedly."""
    row = _settable(request, cluster)
    return _set(
        request,
        LemonRepairs(request.POST or None, cluster=row),
        row,
        "lemon_repairs",
        address=reverse("console:report-lemons", args=(row.name,)),
        title=_("Repairs of lemons in %(cluster)s") % {"cluster": row.name},
        text=_(
            "The portal reports at most %(most)s repairs an hour, "
            "and none while %(unanswered)s of them are neither accepted nor refused."
        )
        % {"most": lemon_repairs.MAX_REPORTS, "unanswered": lemon_repairs.MAX_UNANSWERED},
    )


def _lemon_settings(
    clusters: list[Cluster], found: list[tuple[Lemon, lemon_repairs.Outlook]], settable: set[int]
) -> list[tuple[Cluster, int, bool]]:
    """Each cluster, how many repairs are due there, and whether the person may change its setting."""
    due = Counter(lemon.place.cluster for lemon, outlook in found if outlook.due)
    return [(cluster, due[cluster.name], cluster.pk in settable) for cluster in clusters]


def _settable(request: Request, cluster: str) -> Cluster:
    """The cluster whose settings the person may change. Raises Http404 and PermissionDenied."""
    row = get_object_or_404(accounts.clusters_of(request.user), name=cluster)
    require(request, Verb.GUARD, row)
    return row


def _set(request: Request, form: Price | LemonRepairs, row: Cluster, setting: str, **shown: str) -> HttpResponse:
    """Show the form of a setting (GET), then change it (POST)."""

    def change(given: dict[str, Any], now: datetime) -> None:
        changes, actor = {setting: given[setting]}, accounts.actor(request.user)
        cluster_settings.set_cluster(row, changes, actor=actor, reason=given["reason"], now=now)

    look: dict[str, Any] = {"verb": _("Save"), "icon": "settings", **shown}
    return form_dialog.act(request, form, change, back=reverse("console:reports"), step_up=True, **look)


def _rows(table: str, scope: accounts.Scope, asked: report_choice.Asked, *, now: datetime) -> list[tables.Row]:
    if table == "lemons":
        found = lemon_repairs.with_outlooks(reliability.nodes_that_fail(scope, asked.cluster, now=now))
        return [tables.lemon(row, outlook) for row, outlook in found]
    return TABLES[table](reliability.reliability(scope, asked.cluster, asked.by, asked.period))


TABLES: Mapping[str, Callable[[Report], list[tables.Row]]] = {
    "groups": lambda report: [tables.group(row) for row in report.rows],
    "phases": lambda report: [tables.phase(row) for row in report.phases],
    "steps": lambda report: [tables.step(row) for row in report.steps],
    "trend": lambda report: [tables.bucket(row) for row in report.buckets],
    "figures": lambda report: [tables.figures(of) for of in (report.now, report.before)],
    "lemons": lambda _report: [],
}


def _api_query(asked: report_choice.Asked) -> dict[str, Any]:
    """The same report over REST."""
    moments = {"from": asked.period.since, "to": asked.period.until}
    found = {name: moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for name, moment in moments.items()}
    return {**found, "by": str(asked.by), **({"cluster": asked.cluster.name} if asked.cluster else {})}
