"""Incidents: the list, and one with what its code means and what was decided about it."""

from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from kcover import catalog
from kcover_portal.accounts import queries as accounts
from kcover_portal.console import forms, lists
from kcover_portal.console.access import Request, signed_in
from kcover_portal.incidents.models import Incident

PAGE = 50
EVENTS = 50


def _page(request: Request, rows: QuerySet[Any]) -> Page[Any]:
    return Paginator(rows, PAGE).get_page(request.GET.get("page"))


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
def events(request: Request) -> HttpResponse:
    """Every sighting that is kept, newest first."""
    found = lists.find(lists.EVENTS, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "kind", "code", "source", "drill"),
        "page": _page(request, found.rows.select_related("node__cluster", "incident")),
        "any": found.seen.exists(),
    }
    return render(request, "console/pages/events.html", context)


@require_GET
@signed_in
def decisions(request: Request) -> HttpResponse:
    """Every answer about a fault, newest first, the ones that were no included."""
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
