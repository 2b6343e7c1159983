"""Bulk actions: a preview (GET), then the action row by row (POST)."""

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from kcover_portal.console import form_dialog, forms, lists
from kcover_portal.console.access import Request, dialog, place_for_preview, signed_in
from kcover_portal.console.reads import bulk_actions
from kcover_portal.rescue.control import requests
from kcover_portal.rescue.services import MAX_NODES_AT_ONCE

MAX_ROWS = MAX_NODES_AT_ONCE  # of either list
CONFIRM_FROM_ROWS = 5  # rows; above this, the number must be typed


@require_http_methods(["GET", "POST"])
@signed_in
def act(request: Request, name: str, verb: str) -> HttpResponse:
    """Act on exactly the rows of the preview; each row has its own result."""
    kind = bulk_actions.KINDS.get(name)
    if kind is None or verb not in kind.verbs:
        raise Http404
    posted = request.method == "POST"
    query = (request.POST if posted else request.GET).copy()
    seen = dict(part.partition(":")[::2] for part in query.get("picked", "").split(",") if part)
    seen = {str(int(key)): version for key, version in seen.items() if lists.KEY.fullmatch(key)}
    query["picked"] = ",".join(seen)
    if posted:
        query.pop("all", None)  # rows outside the preview are not affected
    found = lists.find(lists.LISTINGS[name], request.user, query)
    # Rows that a mistyped filter did not leave out were not meant.
    rows = found.rows.none() if "all" in query and found.problems else found.rows
    number = rows.count()
    context: dict[str, Any] = {"name": name, "verb": verb, "number": number, "limit": MAX_ROWS}
    context["problems"] = found.problems if "all" in query else []
    if not 0 < number <= MAX_ROWS:
        return render(
            request,
            "console/pages/many.html",
            {**context, "too_many": number > MAX_ROWS, "base": dialog(request)},
            status=422,
        )
    now = timezone.now()
    chosen = list(kind.read(rows))
    with place_for_preview(request):
        hits = kind.preview(chosen, verb, user=request.user, now=now)
    willing = [hit for hit in hits if not hit.refusals]
    pods = sum(hit.pods or 0 for hit in willing)
    # After the preview, the number to type stays the same, whatever has changed since.
    shown = len(seen) if posted else len(willing)
    form = forms.Act(
        request.POST or None,
        typed=f"{verb} {shown}" if shown > CONFIRM_FROM_ROWS or pods >= forms.CONFIRM_FROM_PODS else "",
    )
    once = request.POST.get("once", "").replace("\0", "")[:40] or secrets.token_hex(8)

    def do(given: dict[str, Any], _now: datetime) -> HttpResponse:
        answers = kind.act(chosen, verb, user=request.user, reason=given["reason"], seen=seen, once=once, now=now)
        return render(request, "console/pages/many_done.html", {**context, "answers": answers, "base": dialog(request)})

    context |= {
        "hits": hits,
        "scope_names": _names(hits) if name == "nodes" else "",
        "willing": len(willing),
        "pods": pods,
        "picked": request.POST.get("picked") or ",".join(hit.key for hit in willing),
        "once": once,
    }
    context |= {"page": "console/pages/many.html", "back": reverse(f"console:{name}")}
    step_up = verb == "approve" or requests.needs_factor(verb)
    return form_dialog.act(request, form, do, step_up=step_up, **context)


def _names(hits: Sequence[bulk_actions.BulkTarget]) -> str:
    """The nodes of the preview as a scope, for its line; "" for nodes of several clusters, which share no guards."""
    return ", ".join(hit.name for hit in hits) if len({hit.cluster for hit in hits}) == 1 else ""
