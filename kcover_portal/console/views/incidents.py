"""Incidents: the list, and one with what its code means and what was decided about it."""

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from kcover import catalog
from kcover_portal.accounts import queries as accounts
from kcover_portal.console import forms
from kcover_portal.console.access import Request, signed_in
from kcover_portal.incidents.filtersets import IncidentFilter
from kcover_portal.incidents.models import Incident

PAGE = 50
EVENTS = 50


@require_GET
@signed_in
def incidents(request: Request) -> HttpResponse:
    """The list, newest first."""
    clusters = accounts.clusters_of(request.user)
    rows = Incident.objects.filter(cluster__in=clusters)
    chosen = IncidentFilter(request.GET, queryset=rows)
    found = chosen.qs.select_related("node", "cluster")
    page = Paginator(found, PAGE).get_page(request.GET.get("page"))
    context = {
        "filter": chosen,
        "form": forms.shown(
            chosen, "q", "cluster", "state", "kind", "code", "program", clusters=[one.name for one in clusters]
        ),
        "page": page,
        "any": rows.exists(),
    }
    return render(request, "console/pages/incidents.html", context)


@require_GET
@signed_in
def incident(request: Request, pk: int) -> HttpResponse:
    """One incident: what it means, what is usually done, what was decided and why, and its sightings."""
    seen = Incident.objects.filter(cluster__in=accounts.clusters_of(request.user))
    row = get_object_or_404(seen.select_related("node", "cluster"), pk=pk)
    numeric = row.kind in ("xid", "sxid") and row.code.isdigit()
    context = {
        "incident": row,
        "fact": catalog.describe(row.kind, int(row.code)) if numeric else None,
        "decisions": list(row.decisions.all()[:20]),
        "rescues": list(row.rescues.all()),
        "events": list(row.events.all()[:EVENTS]),
    }
    return render(request, "console/pages/incident.html", context)
