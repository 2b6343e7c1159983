"""Incidents, their events and decisions."""

from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover.faults import catalog
from kcover_portal import localization
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms, lists
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.reads import fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import queries, services
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import queries as jobs
from kcover_portal.rescue import services as rescue

PAGE_ROWS = 50
MAX_OCCURRENCES = 50


def _page(request: Request, rows: QuerySet[Any]) -> Page[Any]:
    return Paginator(rows, PAGE_ROWS).get_page(request.GET.get("page"))


@require_GET
@signed_in
def incidents(request: Request) -> HttpResponse:
    """The list, newest first."""
    found = lists.find(lists.INCIDENTS, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "state", "kind", "code", "program"),
        "page": _page(request, found.rows.select_related("node", "cluster")),
        "any": found.seen.exists(),
    }
    return render(request, "console/pages/incidents.html", context)


@require_GET
@signed_in
def occurrences(request: Request) -> HttpResponse:
    """Every stored occurrence, newest first."""
    found = lists.find(lists.OCCURRENCES, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "kind", "code", "source", "drill"),
        "page": _page(request, found.rows.select_related("node__cluster", "incident")),
        "any": found.seen.exists(),
    }
    return render(request, "console/pages/occurrences.html", context)


@require_GET
@signed_in
def decisions(request: Request) -> HttpResponse:
    """Every decision about a fault, newest first."""
    found = lists.find(lists.DECISIONS, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "answer", "mode", "policy"),
        "page": _page(request, found.rows.select_related("node__cluster", "incident")),
        "any": found.seen.exists(),
    }
    return render(request, "console/pages/decisions.html", context)


@require_GET
@signed_in
def incident(request: Request, pk: int) -> HttpResponse:
    """One incident: its meaning and remedy, its decisions and its occurrences."""
    seen = accounts.visible(request.user, Incident.objects.all())
    row = get_object_or_404(seen.select_related("node", "cluster"), pk=pk)
    numeric = row.kind in ("xid", "sxid") and row.code.isdigit()
    context = {
        "incident": row,
        "fact": catalog.describe(row.kind, int(row.code)) if numeric else None,
        "decisions": list(row.decisions.all()[:20]),
        "rescues": list(row.rescues.all()),
        "occurrences": list(row.occurrences.all()[:MAX_OCCURRENCES]),
        "scope": _scope(row),
        "context": queries.program_context_of(row, now=row.last_at),
        "jobs": jobs.of_incidents([row.pk]).get(row.pk, ()),
        "closes": row.state == Incident.State.OPEN and accounts.may(request.user, Verb.CLOSE, row.node or row.cluster),
    }
    return render(request, "console/pages/incident.html", context)


def _scope(storm: Incident) -> list[tuple[str, fleet.Tile | None]]:
    """The nodes of a storm by name, each with its map tile if it has one."""
    nodes = Node.objects.filter(cluster=storm.cluster, name__in=storm.scope).values_list("pk", flat=True)
    tiles = {
        tile.name: tile for tile in fleet.tiles(accounts.Scope.of(storm.cluster), now=timezone.now(), nodes=list(nodes))
    }
    return [(name, tiles.get(name)) for name in storm.scope]


@require_http_methods(["GET", "POST"])
@signed_in
def close(request: Request, pk: int) -> HttpResponse:
    """Close an incident or a storm by hand; what the storm blocked is evaluated again."""
    seen = accounts.visible(request.user, Incident.objects.all())
    row = get_object_or_404(seen.select_related("node", "cluster"), pk=pk)
    # Closing the fault of a two-person question would end the question.
    require(request, Verb.APPROVE if rescue.question_about(row) else Verb.CLOSE, row.node or row.cluster)
    form = forms.Act(request.POST or None)
    page = reverse("console:incident", args=(pk,))
    if request.method == "POST" and form.is_valid():
        reason = form.cleaned_data["reason"]
        try:
            services.close_by_hand(row, actor=accounts.actor(request.user), reason=reason, now=timezone.now())
        except services.CloseRefused as error:
            form.add_error(None, localization.say(error.reason))
        else:
            return lead(request, page)
    if row.node is None:
        title = _("Close the storm")
        text = _("Confirms that the cause is gone. Its nodes are evaluated again at once.")
    else:
        title = _("Close the incident")
        text = _("Closes the incident without verification. If the fault recurs, a new incident is opened.")
    address = reverse("console:incident-close", args=(pk,))
    return form_dialog.ask(request, form, back=page, address=address, title=title, text=text, verb=title, icon="check")
