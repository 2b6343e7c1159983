"""Parts by serial number: the list of their places, one part with its history, and the review of a flagged one."""

from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover.audit import subjects
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms, lists
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.views.saved_views import opens_first
from kcover_portal.lib import localization
from kcover_portal.parts import queries, services
from kcover_portal.parts.models import Part, Placement
from kcover_portal.shared_reads import audit, passports

PAGE_ROWS = 50
MAX_HISTORY = 50  # entries; the audit log has them all


@require_GET
@signed_in
@opens_first("placements")
def parts(request: Request) -> HttpResponse:
    """The placements, the newest first."""
    found = lists.find(lists.PLACEMENTS, request.user, request.GET)
    page = Paginator(found.ordered().select_related("part", "cluster", "node"), PAGE_ROWS).get_page(
        request.GET.get("page")
    )
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "kind", "node", "present", "needs_person"),
        "page": page,
        "rows": page.object_list,
        "any": found.seen.exists(),
    }
    return render(request, "console/pages/parts.html", context)


@require_GET
@signed_in
def part(request: Request, pk: int) -> HttpResponse:
    """One part: where it is and has been, its faults, repairs and tests, and the chance of a fault."""
    seen = accounts.visible(request.user, Placement.objects.all())
    row = get_object_or_404(queries.with_placement(Part.objects.all(), seen), pk=pk)
    passport = passports.of(request.user, row, now=timezone.now())
    entries = audit.entries(request.user).filter(subject=subjects.part(row.pk))
    open_flags = [one for one in passport.placements if one.flagged_at and not one.reviewed_at and not one.ended_at]
    context = {
        "part": row,
        "passport": passport,
        "here": [one for one in passport.placements if one.ended_at is None],
        "flags": [(one, one.reasons, accounts.may(request.user, Verb.HANDLE_REPAIRS, one.place)) for one in open_flags],
        "percent": f"{passport.risk.probability:.1%}" if passport.risk else None,
        "basis": localization.say(passport.risk.because) if passport.risk else "",
        "follows": localization.say(passport.follows) if passport.follows else "",
        "entries": list(entries[:MAX_HISTORY]),
    }
    return render(request, "console/pages/part.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def review(request: Request, pk: int, placement: int) -> HttpResponse:
    """Ask why the part stays where it is (GET), then record that somebody looked at it (POST)."""
    seen = accounts.visible(request.user, Placement.objects.select_related("part", "cluster", "node"))
    row = get_object_or_404(seen, pk=placement, part=pk)
    require(request, Verb.HANDLE_REPAIRS, row.place)

    def do(given: dict[str, Any], now: datetime) -> None:
        services.review(row.pk, actor=accounts.actor(request.user), reason=given["reason"], now=now)

    return form_dialog.act(
        request,
        forms.Act(request.POST or None),
        do,
        back=reverse("console:part", args=(pk,)),
        address=reverse("console:part-review", args=(pk, placement)),
        title=_("Keep part %(serial)s in %(node)s?") % {"serial": row.part.serial, "node": row.node_name},
        text=_("Records that you looked at the part. It no longer needs attention."),
        verb=_("Keep"),
        icon="check",
    )
