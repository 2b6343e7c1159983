"""Safety: the guards of each cluster with their counts, and changing them."""

from datetime import datetime, timedelta
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover.decisions import guards
from kcover.policy import modes
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms, presentation, scope_choice, time_zones
from kcover_portal.console.access import Request, place, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms import guard_settings
from kcover_portal.console.forms.cluster_settings import DOMAINS
from kcover_portal.console.forms.scopes import FIELDS
from kcover_portal.console.reads import headroom as history, safety as reads, trends
from kcover_portal.console.reads.step_facts import duration
from kcover_portal.console.views import cluster_settings as setting_views
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings, pauses, pending_changes
from kcover_portal.runtime.models import Mode
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import maintenance_scopes

# Guards without a count: only their settings are shown.
PLAIN = ("cooldown", "hold_down", "repeats", "ladder", "expiry")


@require_GET
@signed_in
def safety(request: Request) -> HttpResponse:
    """Every visible cluster with its mode, guards and excluded nodes, and the maintenance windows."""
    now = timezone.now()
    clusters = list(accounts.clusters_of(request.user).order_by("name"))
    operable = set(accounts.clusters_of(request.user, Verb.GUARD).values_list("pk", flat=True))
    windows = [
        (
            window,
            window.starts_at <= now,
            reads.where_of(maintenance_scopes.seen_by(request.user, window)),
            accounts.may(request.user, Verb.MAINTAIN, window.cluster),
        )
        for window in reads.next_windows(clusters, now=now)
    ]
    context = {
        "clusters": [
            {
                "bounds": reads.bounds(cluster, now=now),
                "plain": [(name, _plain(cluster, name)) for name in PLAIN],
                "topology": _topology(cluster),
                "may": cluster.pk in operable,
                "sets": accounts.may(request.user, Verb.CONFIGURE, cluster),
            }
            for cluster in clusters
        ],
        "changes": setting_views.open_changes(request, clusters),
        "windows": windows,
        "announces": accounts.scope(request.user, Verb.MAINTAIN).has_clusters,
        "excludes": accounts.may_somewhere(request.user, Verb.REPAIR),
        "label": guards.EXCLUDE_LABEL,
    }
    return render(request, "console/pages/safety.html", context)


def _topology(cluster: Cluster) -> list[tuple[object, str, str]]:
    """Each domain of the topology, its label key, and what applies without one."""
    platforms = _("detected from standard labels")
    return [(name, cluster.topology.get(domain, ""), platforms) for domain, name in DOMAINS.items()]


def _plain(cluster: Cluster, name: str) -> str:
    """A guard without a count, in words."""
    settings = fleet.guards_of(cluster)
    match guards.to_json(settings)[name]:
        case int(seconds):
            return duration(timedelta(seconds=seconds)) if seconds else _("none")
        case {"limit": limit, "window": window} | {"reboots": int(limit), "window": window}:
            return _("%(n)d within %(within)s") % {"n": limit, "within": duration(timedelta(seconds=window))}
    return _("off")


@require_GET
@signed_in
def headroom(request: Request) -> HttpResponse:
    """How near the visible clusters came to their breakers and budgets; a separate request, since the page is live."""
    asked = request.GET.get("span", "")
    span = asked if asked in trends.SPANS else trends.USUAL
    clusters, now = list(accounts.clusters_of(request.user).order_by("name")), timezone.now()
    with place(request, concurrency_limits.REPORTS):
        budgets = history.of_budgets(clusters, now=now, span=span)
    context = {
        "clusters": history.of_breakers(clusters, now=now, span=span),
        "budgets": budgets,
        "spans": trends.SPANS,
        "span": span,
        "own": reverse("console:safety-headroom"),
    }
    return render(request, "console/parts/headroom.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def guard(request: Request, cluster: str, guard: str) -> HttpResponse:
    """Show a guard's settings (GET), then change them with a reason (POST), effective before the next cluster call."""
    if guard not in guard_settings.PARTS:
        raise Http404
    row = _cluster(request, cluster)
    require(request, Verb.CONFIGURE, row)
    form = guard_settings.Guard(request.POST or None, guard=guard, settings=fleet.guards_of(row))
    look = presentation.GUARDS[guard]
    address = reverse("console:safety-guard", args=(row.name, guard))
    title = f"{look.label} · {row.name}"
    return _change_guards(request, row, form, title=title, icon=look.icon, text=look.help, address=address)


@require_http_methods(["GET", "POST"])
@signed_in
def group_budget(request: Request, cluster: str) -> HttpResponse:
    """Set, change or remove the budget of one group of nodes, with a reason."""
    row = _cluster(request, cluster)
    require(request, Verb.CONFIGURE, row)
    initial = {name: request.GET[name] for name in ("by", "which") if name in request.GET}
    settings = fleet.guards_of(row)
    form = guard_settings.GroupBudget(request.POST or None, cluster=row, settings=settings, initial=initial)
    title = _("Budget of a group in %(cluster)s") % {"cluster": row.name}
    text = _("The most nodes of this group that are isolated or in rescue at a time. The other limits hold, too.")
    address, look = reverse("console:safety-group", args=(row.name,)), presentation.GUARDS["budget"]
    return _change_guards(request, row, form, title=title, icon=look.icon, text=text, address=address)


def _change_guards(
    request: Request, row: Cluster, form: guard_settings.Guard | guard_settings.GroupBudget, **shown: Any
) -> HttpResponse:
    """Show the form, then change the guards. A looser setting waits where the cluster asks for a second admin."""

    def change(given: dict[str, Any], now: datetime) -> HttpResponse | None:
        if pending_changes.loosens_guards(row, form.patch()) and pending_changes.needs_second(row):
            return setting_views.ask_second(request, row, "guards", form.patch(), reason=given["reason"])
        actor, kind = accounts.actor(request.user), pending_changes.GUARDS
        pending_changes.change(row, kind, form.patch(), may_loosen=True, actor=actor, reason=given["reason"], now=now)
        return None

    return _act(request, form, change, step_up=True, **shown)


@require_http_methods(["GET", "POST"])
@signed_in
def mode(request: Request, cluster: str) -> HttpResponse:
    """Change the mode of one cluster; the strictest of environment, global and cluster mode applies."""
    row = _cluster(request, cluster)
    wanted = request.GET.get("mode", "")
    form = guard_settings.ClusterMode(
        request.POST or None,
        mode=wanted if wanted in presentation.TABLES["mode"] else row.mode,
        seen=pauses.seen(row),
    )

    def change(given: dict[str, Any], now: datetime) -> HttpResponse | None:
        actor, changes = accounts.actor(request.user), {"mode": given["mode"]}
        resumes = row.mode == Mode.PAUSED and given["mode"] != Mode.PAUSED
        if resumes:
            require(request, Verb.RESUME, row)
        if modes.MODES.index(given["mode"]) > modes.MODES.index(row.mode):
            confirm(request)
        loosens = pending_changes.loosens_settings(row, changes)
        if loosens:
            require(request, Verb.CONFIGURE, row)
            if pending_changes.needs_second(row):
                return setting_views.ask_second(request, row, "settings", changes, reason=given["reason"])
        told = {"actor": actor, "reason": given["reason"], "seen": given["seen"]}
        kind = pending_changes.SETTINGS
        with guard_settings.shows_the_pause_anew(form, row):
            pending_changes.change(row, kind, changes, may_loosen=loosens, may_resume=resumes, now=now, **told)
        return None

    title = _("Mode of %(cluster)s") % {"cluster": row.name}
    address = reverse("console:safety-mode", args=(row.name,))
    return _act(request, form, change, title=title, icon="shield-check", address=address)


@require_http_methods(["GET", "POST"])
@signed_in
def announce(request: Request) -> HttpResponse:
    """Schedule a maintenance window, in which no node is isolated or rebooted."""
    if not accounts.scope(request.user, Verb.MAINTAIN).has_clusters:
        require(request, Verb.MAINTAIN, None)
    zone = time_zones.of(request)
    with timezone.override(zone):
        initial, note = scope_choice.initial(request)
        form = guard_settings.Window(
            request.POST or None,
            clusters=accounts.clusters_of(request.user, Verb.MAINTAIN),
            everywhere=accounts.may(request.user, Verb.MAINTAIN, None),
            zone=zone.key,
            initial=initial,
        )

        def schedule(given: dict[str, Any], now: datetime) -> None:
            require(request, Verb.MAINTAIN, given["cluster"])
            starts_at, ends_at = form.span(now=now)
            cluster_settings.open_maintenance(
                given["cluster"],
                selection=given["scope"].to_json(),
                fields=FIELDS,
                starts_at=starts_at,
                ends_at=ends_at,
                repeats=given["recurrence"],
                reason=given["reason"],
                actor=accounts.actor(request.user),
                now=now,
            )

        text = presentation.GUARDS["maintenance"].help
        address = reverse("console:maintenance-new")
        shown: dict[str, Any] = {"title": _("Schedule maintenance"), "icon": "tool", "text": text, "note": note}
        shown["address"] = address
        return _act(request, form, schedule, **shown)


@require_http_methods(["GET", "POST"])
@signed_in
def end_maintenance(request: Request, pk: int) -> HttpResponse:
    """End a window now, or cancel one that has not started."""
    now = timezone.now()
    row = get_object_or_404(reads.windows(list(accounts.clusters_of(request.user)), now=now), pk=pk)
    require(request, Verb.MAINTAIN, row.cluster)
    form = guard_settings.EndWindow(request.POST or None, repeats=row.series is not None)

    def end(given: dict[str, Any], now: datetime) -> None:
        actor, whole = accounts.actor(request.user), form.whole_series
        cluster_settings.end_maintenance(row, actor=actor, reason=given["reason"], now=now, whole_series=whole)

    address = reverse("console:maintenance-end", args=(pk,))
    shown: dict[str, Any] = {"title": _("End this maintenance"), "icon": "tool", "text": row.reason, "address": address}
    return _act(request, form, end, step_up=True, **shown)


def _act(request: Request, form: forms.Act, do: form_dialog.Do, **shown: Any) -> HttpResponse:
    return form_dialog.act(request, form, do, back=reverse("console:safety"), **{"verb": _("Save"), **shown})


def _cluster(request: Request, name: str) -> Cluster:
    """The cluster, if the person can see it; raises PermissionDenied unless they may set its mode."""
    row: Cluster = get_object_or_404(accounts.clusters_of(request.user), name=name)
    require(request, Verb.GUARD, row)
    return row
