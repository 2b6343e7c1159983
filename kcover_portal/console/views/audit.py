"""The audit log, and verifications of its hash chains."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.anchors.models import Verification
from kcover_portal.console import forms, keyset_pages, lists
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.views.saved_views import opens_first
from kcover_portal.shared_reads import audit as shared

PAGE_ROWS = 100


@require_GET
@signed_in
@opens_first("audit")
def audit(request: Request) -> HttpResponse:
    """Entries, newest or oldest first, paged by key so that pages do not shift."""
    found = lists.find(lists.AUDIT, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "actor", "verb", "node", "since", "until"),
        "log": keyset_pages.page(found, found.rows, size=PAGE_ROWS),
        "filtered": bool(found.query),
        "streams": accounts.may(request.user, Verb.STREAM_AUDIT, None),
    }
    return render(request, "console/pages/audit.html", context)


@require_POST
@signed_in
def verify(request: Request) -> HttpResponse:
    """Begin to verify every chain that the person can see; workers carry it out."""
    row = shared.begin_verification(request.user, now=timezone.now())
    return _verification(request, row) if request.htmx else redirect("console:audit-verification", row.pk)


@require_GET
@signed_in
def verification(request: Request, pk: int) -> HttpResponse:
    """The progress and the verdicts of the person's verification."""
    return _verification(request, get_object_or_404(shared.verifications(request.user), pk=pk))


def _verification(request: Request, row: Verification) -> HttpResponse:
    template = "console/parts/verification.html" if request.htmx else "console/pages/verification.html"
    verdicts = shared.verdicts(request.user, row)
    context = {"verification": row, "open": row.state in Verification.OPEN, "verdicts": verdicts}
    return render(request, template, context)
