"""The audit log, and the verification of its hash chain."""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import forms, lists
from kcover_portal.console.access import Request, place, signed_in
from kcover_portal.ledger import queries
from kcover_portal.runtime.services import places
from kcover_portal.views import audit as shared

PAGE = 100


@require_GET
@signed_in
def audit(request: Request) -> HttpResponse:
    """Entries, newest first, paged by key so that pages do not shift."""
    found = lists.find(lists.AUDIT, request.user, request.GET)
    rows = found.rows
    before = request.GET.get("before", "")
    if lists.KEY.fullmatch(before):
        rows = rows.filter(pk__lt=int(before))
    entries = list(rows.order_by("-pk")[: PAGE + 1])
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "actor", "verb", "node"),
        "entries": entries[:PAGE],
        "older": entries[PAGE - 1].pk if len(entries) > PAGE else None,
        "before": before,
        "filtered": bool(found.query),
        "streams": accounts.may(request.user, Verb.ADMINISTER, None),
    }
    return render(request, "console/pages/audit.html", context)


@require_POST
@signed_in
def verify(request: Request) -> HttpResponse:
    """Verify every chain that the person can see."""
    seen = shared.entries(request.user).order_by()
    with place(request, places.VERIFICATIONS) as held:
        verdicts = []
        for chain in sorted(set(seen.values_list("cluster", flat=True).distinct())):
            verdicts.append(queries.verify(chain))
            held.renew(now=timezone.now())
    return render(request, "console/parts/verdicts.html", {"verdicts": verdicts})
